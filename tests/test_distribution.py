"""Files that share a costly server run in one process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import conftest
from tests.support.distribution import (
    TOGETHER,
    LoadGroupsScheduling,
    LoadServersScheduling,
    group_of,
    unit_of,
)

ROOT = Path(__file__).resolve().parents[1]


def test_all_files_of_a_server_are_one_unit_and_any_other_file_is_its_own() -> None:
    assert unit_of("tests/connectors/mysql_sink/test_rows.py") == "MySQL"
    assert unit_of("tests/connectors/mysql_source/test_ddl.py") == "MySQL"
    assert unit_of("tests/api/test_rows.py") == "tests/api/test_rows.py"


@pytest.mark.parametrize("folder", TOGETHER)
def test_a_folder_of_a_server_has_tests_that_start_it(folder: str) -> None:
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / folder).glob("test_*.py")]
    assert any("mark.system" in text or "mark.kafka" in text for text in texts)


@pytest.mark.parametrize(("dist", "is_ours"), [("loadfile", True), ("worksteal", False)])
def test_only_a_run_by_files_is_distributed_by_servers(dist: str, *, is_ours: bool) -> None:
    options = {"dist": dist, "tx": ["2*popen"]}
    config = cast(Any, SimpleNamespace(getvalue=options.get))
    found = conftest.pytest_xdist_make_scheduler(config, None)
    assert isinstance(found, LoadServersScheduling) is is_ours
    if is_ours:
        assert cast(Any, found)._split_scope("tests/changes/test_hand.py::test_it[a]") == "Kafka"


def test_all_tests_of_a_file_with_a_group_are_one_unit_and_any_other_test_is_its_own() -> None:
    grouped, single = "tests/system/test_fuzz.py", "tests/system/test_kill9.py::test_it[a@b]"
    assert group_of(f"{grouped}::test_it[a]") == grouped
    assert group_of(single) == single


def test_a_run_by_groups_is_distributed_by_the_marks_in_files() -> None:
    options = {"dist": "loadgroup", "tx": ["2*popen"]}
    config = cast(Any, SimpleNamespace(getvalue=options.get))
    found = conftest.pytest_xdist_make_scheduler(config, None)
    assert isinstance(found, LoadGroupsScheduling)
    assert cast(Any, found)._split_scope("tests/system/test_fuzz.py::test_it[a]") == (
        "tests/system/test_fuzz.py"
    )
