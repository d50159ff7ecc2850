"""Which process of pytest-xdist runs which files of tests.

With ``--dist loadfile`` a file's tests run in one process. Each process starts the servers that its
files share. So files that share a costly server are one unit: two of three processes never start
it, nor keep it running to their end.

With ``--dist loadgroup`` each test is a unit, except in files that name the mark ``xdist_group``:
all tests of such a file are one. pytest-xdist itself adds the group to a test's id, which pytest
9.2 ignores: then each process started the servers of a group.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling, LoadGroupScheduling

__all__ = ["TOGETHER", "LoadGroupsScheduling", "LoadServersScheduling", "group_of", "unit_of"]

ROOT = Path(__file__).resolve().parents[2]

TOGETHER = {
    "tests/changes/": "Kafka",
    "tests/conformance/with_java/": "the programs in Java",
    "tests/connectors/analytics/": "ClickHouse",
    "tests/connectors/clickhouse/": "ClickHouse",
    "tests/connectors/kafka/": "Kafka",
    "tests/connectors/mysql_sink/": "MySQL",
    "tests/connectors/mysql_source/": "MySQL",
    "tests/connectors/source_contract/": "MySQL",
    "tests/console/browser/": "Chromium",
}
"""Folders, and the server that their tests share. All tests of a server are one unit."""


def unit_of(file: str) -> str:
    """Return the unit of a file of tests: its server, or the file itself."""
    return next((unit for folder, unit in TOGETHER.items() if folder in file), file)


class LoadServersScheduling(LoadFileScheduling):  # type: ignore[misc]  # It has no types.
    """Gives all files of a server to one process, and any other file to the next that is free."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(super()._split_scope(nodeid))


def group_of(nodeid: str) -> str:
    """Return the unit of a test: its file, if that names a group, or the test itself."""
    file = nodeid.partition("::")[0]
    return file if _has_group(file) else nodeid


@cache
def _has_group(file: str) -> bool:
    return "mark.xdist_group(" in (ROOT / file).read_text(encoding="utf-8")


class LoadGroupsScheduling(LoadGroupScheduling):  # type: ignore[misc]  # It has no types.
    """Gives all tests of a file with a group to one process, and any other test to the next."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
