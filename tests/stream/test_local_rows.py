"""Which stores are thrown away: damaged or old ones, and those that saw no range come."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest

from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.schema import ShardRange
from rowtide.stream.log.changelog import ChangelogEntry, ChangelogReader
from rowtide.stream.shard.row_store import RowStore, StoreFailed, destroy
from rowtide.stream.slot.changelog.recovery import recover_rows
from rowtide.stream.slot.local_rows import find_known_shards, local_rows, remove_old, unseen
from tests.core.shard_model import table

KEPT_S = 12 * 3600.0

HOME = ShardRange("s1", 0)
CAME = ShardRange("s7", 0, floor_us=500, copied=True, came=True)
PART = ShardRange("s8", 0, floor_us=600, came=True)
ENDED = ShardRange("s7", 0, copied=True, came=True, sealed_us=600, sealed_at=9)

SCENARIOS = {
    "an empty store learns all": (None, [HOME, CAME], []),
    "one that has seen it come": ({"s1", "s7"}, [HOME, CAME], []),
    "one that has not": ({"s1"}, [HOME, CAME], ["s7"]),
    "one that knows a shard that was always here": ({"s7"}, [HOME, CAME], []),
    "one that slept until it was split": ({"s1"}, [HOME, ENDED, PART], ["s8"]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_store_has_not_seen_come(tmp_path: Path, name: str) -> None:
    marks, shards, expected = SCENARIOS[name]
    rows = RowStore(tmp_path / "rows")
    if marks is not None:
        rows.set_changelog_position(5, 0.0)
        state = encode_mark(ShardState(table().options, applied=3))
        rows.write([], [(mark_key(shard_id), state) for shard_id in sorted(marks)])
    assert unseen(find_known_shards(rows), [(table(), shard) for shard in shards]) == expected
    rows.close()


def fill_store(path: Path, *, read_s: float | None = None) -> None:
    """Leave a store of several files behind, with all that was read by ``read_s``."""
    rows = RowStore(path)
    for number in range(3):
        rows.write([(b"r%d" % number, b"1")])
        rows.flush()
    rows.set_changelog_position(5, time.time() if read_s is None else read_s)
    rows.close()


def is_kept(path: Path) -> bool:
    """True if the rows in a directory are opened, not replaced by an empty store."""
    rows = local_rows(path, kept_s=KEPT_S)
    position = rows.changelog_position()
    rows.close()
    return position is not None


AGES = """
age s       kept   why
43199       yes    less than the changelog keeps removals
43201       no     a row's removal may be gone from the changelog
-59         yes    the clock was set back as it is kept in step
-61         no     written, or opened, by a clock that is wrong: it may be of any age
-864000     no     the same, by days
"""


@pytest.mark.parametrize("line", AGES.strip().splitlines()[1:])
def test_rows_are_as_old_as_the_time_noted_in_them(tmp_path: Path, line: str) -> None:
    age, expected, _ = line.split(maxsplit=2)
    with patch("rowtide.stream.slot.local_rows.time.time", lambda: 1_700_000_000.0):
        fill_store(tmp_path / "rows", read_s=1_700_000_000.0 - float(age))
        assert is_kept(tmp_path / "rows") == (expected == "yes")


def first(path: Path, pattern: str) -> Path:
    return min(path.glob(pattern))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file is missing": lambda path: first(path, "*.sst").unlink(),
    "a file is short": lambda path: first(path, "*.sst").write_bytes(b"short"),
    "the list of files is not one": lambda path: first(path, "MANIFEST*").write_bytes(b"x" * 99),
    "the list of files is missing": lambda path: first(path, "MANIFEST*").unlink(),
    "the name of the list is missing": lambda path: (path / "CURRENT").unlink(),
    "the name of the list is empty": lambda path: (path / "CURRENT").write_bytes(b""),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_rows_are_thrown_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path = tmp_path / "rows"
    fill_store(path)
    DAMAGES[name](path)
    assert not is_kept(path)
    assert "local rows are damaged, rebuilding from Kafka" in caplog.text


def test_rows_that_are_in_use_stay(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    fill_store(path)
    other = RowStore(path)
    with pytest.raises(StoreFailed):
        is_kept(path)
    other.close()
    assert is_kept(path)


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "a file leads nowhere": lambda path: path.symlink_to(path.name),
    "a directory is in a file's place": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_rows_of_which_a_file_is_not_readable_stay(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows"
    fill_store(path)
    file = first(path, "*.sst")
    file.rename(aside := tmp_path / "aside")
    UNREADABLE[name](file)
    with pytest.raises(StoreFailed, match="IO error"):
        is_kept(path)
    file.unlink() if file.is_symlink() else file.rmdir()
    aside.rename(file)
    assert is_kept(path)


def test_a_removal_that_was_cut_short_leaves_no_store(tmp_path: Path) -> None:
    """A process was killed while files went, one after another."""
    path = tmp_path / "rows"
    fill_store(path)

    def cut_short(removed: Path, **_: object) -> None:
        if removed.exists():
            first(removed, "MANIFEST*").unlink()

    with patch.object(shutil, "rmtree", cut_short):
        destroy(path)
    assert not path.exists()
    assert not is_kept(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows"], "the rest went, too"


def test_a_directory_that_can_not_be_removed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    fill_store(path)
    with patch.object(Path, "rename", side_effect=PermissionError), pytest.raises(StoreFailed):
        destroy(path)
    assert is_kept(path)


def test_rows_that_nobody_opened_for_long_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows" / "3"
    assert remove_old(path, 60.0) == math.inf
    path.parent.mkdir()
    local_rows(path, kept_s=60.0).close()
    assert 0 < remove_old(path, 60.0) <= 60.0
    assert path.exists()
    os.utime(path, (0.0, time.time() - 61))
    assert remove_old(path, 60.0) == math.inf
    assert list(path.parent.iterdir()) == []


class CutShort:
    """A changelog that is read for a page, before its reader is killed."""

    position = 0

    async def start(self) -> int:
        """Return where it begins."""
        return 0

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield one page."""
        self.position = from_offset + 1
        yield [ChangelogEntry(from_offset, b"t" + bytes(16), b"12345678", [])]
        raise ConnectionResetError


async def test_rows_are_as_old_as_before_until_all_of_the_changelog_is_read(tmp_path: Path) -> None:
    """Two recoveries that were cut short, half a day apart, could miss what is kept for a day."""
    rows = RowStore(tmp_path / "rows")
    before_s = time.time() - 11 * 3600
    rows.set_changelog_position(5, before_s)
    with pytest.raises(ConnectionResetError):
        await recover_rows(rows, cast(ChangelogReader, CutShort()), lambda _: True)
    assert rows.changelog_position() == 6
    assert rows.changelog_time() == pytest.approx(before_s, abs=1.0)
    rows.close()
