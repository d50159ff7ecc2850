"""``rowtide consumption``: hours for eyes and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowtide.cli.main import main

pytestmark = pytest.mark.system


def run(data_dir: Path, *arguments: str) -> Result:
    """Run a command against the server."""
    return CliRunner().invoke(main, [*arguments, "--data-dir", str(data_dir)])


@pytest.fixture(scope="module", autouse=True)
def rows(data_dir: Path) -> None:
    """Write three rows, one unit each."""
    made = run(data_dir, "table", "create", "counted", "--key", "k:string", "--reserved", "7", "0")
    assert made.exit_code == 0, made.output
    for name in "abc":
        assert run(data_dir, "row", "put", "counted", f"k={name}", "v=1").exit_code == 0


def test_hours_as_json(data_dir: Path) -> None:
    result = run(data_dir, "consumption", "counted", "--output", "json")
    hours = json.loads(result.output)["hours"]
    assert {hour["table"] for hour in hours} == {"counted"}
    assert sum(hour["write"] for hour in hours) == 3
    assert sum(hour["write_on_demand"] for hour in hours) == 3


def test_hours_as_a_table(data_dir: Path) -> None:
    header, *lines = run(data_dir, "consumption").output.splitlines()
    assert header.split("  ")[0] == "hour"
    assert any("counted" in line for line in lines)


def test_a_range_without_hours_is_a_header(data_dir: Path) -> None:
    assert len(run(data_dir, "consumption", "--to", "2020-01-01").output.splitlines()) == 1


def test_a_time_that_is_none_is_refused(data_dir: Path) -> None:
    assert run(data_dir, "consumption", "--from", "soon").exit_code == 2
