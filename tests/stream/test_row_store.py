"""A store of rows that is still in use while it changes, or after it has closed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from os import urandom
from pathlib import Path

import pytest

from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.row_store import RowStore, StoreDamaged


def test_a_snapshot_keeps_to_its_moment_and_knows_what_is_absent(tmp_path: Path) -> None:
    rows = RowStore(tmp_path / "rows")
    rows.write([(b"a", b"1"), (b"b", b"1")])
    get = rows.snapshot()
    rows.write([(b"a", None), (b"b", b"2"), (b"c", b"2")])
    assert [get(key) for key in (b"a", b"b", b"c", b"d")] == [b"1", b"1", None, None]
    del get
    rows.close()


def test_rows_of_a_closed_store_are_unavailable_to_who_still_holds_it(tmp_path: Path) -> None:
    rows = RowStore(tmp_path / "rows")
    rows.write([(b"a", b"1")])
    rows.close()
    with pytest.raises(Unavailable):
        rows.get(b"a")
    with pytest.raises(Unavailable):
        rows.get_many([b"a"])
    with pytest.raises(Unavailable):
        rows.scan(b"a", b"b")
    with pytest.raises(Unavailable):
        rows.files()


def test_a_snapshot_that_is_still_held_ends_with_its_store(tmp_path: Path) -> None:
    """A flush that waits for Kafka holds one, while its slot closes and opens again."""
    rows = RowStore(tmp_path / "rows")
    rows.write([(b"a", b"1")])
    get = rows.snapshot()
    rows.close()
    with pytest.raises(Unavailable):
        get(b"a")
    again = RowStore(tmp_path / "rows")
    assert again.get(b"a") == b"1"
    again.close()


KEYS = [b"r%06d" % number for number in range(3000)]


def make_damaged_rows(path: Path) -> RowStore:
    """Return rows of which a part can't be read."""
    rows = RowStore(path)
    rows.write([(key, urandom(200)) for key in KEYS])
    rows.close()
    [table] = path.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 0xFF
    table.write_bytes(content)
    rows = RowStore(path)
    assert not rows.damaged
    return rows


def one_by_one(rows: RowStore) -> list[bytes | None]:
    return [rows.get(key) for key in KEYS]


def as_of_now(rows: RowStore) -> list[bytes | None]:
    return list(map(rows.snapshot(), KEYS))


@pytest.mark.parametrize("read", [one_by_one, lambda rows: rows.get_many(KEYS), as_of_now])
def test_a_look_at_what_cannot_be_read_says_so(
    tmp_path: Path, read: Callable[[RowStore], list[bytes | None]]
) -> None:
    """It was reported as our own error: by a flush, to the end of the worker."""
    rows = make_damaged_rows(tmp_path / "rows")
    with pytest.raises(StoreDamaged, match="checksum"):
        read(rows)
    assert rows.damaged
    with suppress(StoreDamaged):
        rows.close()


def write_often(rows: RowStore) -> None:
    """Write more files than are left alone."""
    for _ in range(1000):
        rows.write([(KEYS[0], b""), (KEYS[-1], b"")])
        rows.flush()


def test_a_write_that_is_refused_since_a_compaction_met_it_says_so(tmp_path: Path) -> None:
    """So is every later one, and in each opening of these rows again."""
    rows = make_damaged_rows(tmp_path / "rows")
    with pytest.raises(StoreDamaged, match="checksum"):
        write_often(rows)
    assert rows.damaged
    with pytest.raises(StoreDamaged):
        rows.close()


@pytest.mark.parametrize("backward", [False, True], ids=["up", "down"])
def test_a_scan_that_meets_what_cannot_be_read_says_so(tmp_path: Path, *, backward: bool) -> None:
    """RocksDB's entries just end there, and a range would lack rows that were acknowledged."""
    rows = make_damaged_rows(tmp_path / "rows")
    found = rows.scan_backward(b"s", b"r") if backward else rows.scan(b"r", b"s")
    with pytest.raises(StoreDamaged, match="not every entry"):
        list(found)
    assert rows.damaged
    rows.close()


def test_a_scan_to_the_last_row_and_the_first_is_whole(tmp_path: Path) -> None:
    rows = RowStore(tmp_path / "rows")
    rows.write([(b"r%d" % number, b"") for number in range(5)])
    assert len(list(rows.scan(b"r", b"s"))) == 5
    assert len(list(rows.scan_backward(b"s", b"a"))) == 5
    assert not rows.damaged
    rows.close()
