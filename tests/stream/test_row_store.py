"""What a store of rows tells that somebody still holds while it changes, or after it has closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.core.errors import Unavailable
from rowtide.stream.shards.row_store import RowStore


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
