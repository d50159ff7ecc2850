"""The hours' sums on disk: added to, found again, put aside where they are damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from rowtide.core.cluster.metering import HourOf, Taken, Use
from rowtide.stream.measures.consumption_file import KEPT_S, ConsumptionFile

HOUR = 1_469_030_400


def make_taken(read: int = 1, hour_s: int = HOUR, table: str = "t") -> Taken:
    """Return what was counted of one table."""
    return Taken({HourOf(hour_s, "inst", table): Use(read, 2, 3, 4, 5.5, 6.5)}, {hour_s: 60.0})


def test_what_is_added_twice_is_summed(tmp_path: Path) -> None:
    ConsumptionFile(tmp_path / "file").add(make_taken(1))
    file = ConsumptionFile(tmp_path / "file")
    file.add(make_taken(10))
    found = file.find("inst", None, 0, HOUR + 1)
    assert found.uses == {HourOf(HOUR, "inst", "t"): Use(11, 4, 6, 8, 11.0, 13.0)}
    assert found.seconds == {HOUR: 120.0}


def test_hours_are_found_by_instance_table_and_time(tmp_path: Path) -> None:
    file = ConsumptionFile(tmp_path / "file")
    for hour in range(3):
        for table in ("t", "u"):
            file.add(make_taken(hour_s=HOUR + hour * 3600, table=table))
    assert len(file.find("inst", None, 0, 2**62).uses) == 6
    found = file.find("inst", "u", HOUR + 1, HOUR + 7200)
    assert list(found.uses) == [HourOf(HOUR + 3600, "inst", "u")]
    assert file.find("other", None, 0, 2**62).uses == {}


def test_old_hours_go(tmp_path: Path) -> None:
    file = ConsumptionFile(tmp_path / "file")
    file.add(make_taken())
    file.add(make_taken(hour_s=HOUR + KEPT_S + 3600))
    assert len(file.find("inst", None, 0, 2**62).uses) == 1


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"not a database" * 100)
    ConsumptionFile(path).add(make_taken())
    assert (tmp_path / "file.damaged").exists()
    assert len(ConsumptionFile(path).find("inst", None, 0, 2**62).uses) == 1


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        ConsumptionFile(tmp_path / "gone" / "file").add(make_taken())
