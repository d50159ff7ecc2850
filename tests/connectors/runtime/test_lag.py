"""The lag, computed from a consumer's rows and the shards."""

from __future__ import annotations

from typing import cast

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import START, MemoryLeases, ReaderLease
from rowtide.client.changes.source import SourceShard
from rowtide.client.changes.start import Start
from rowtide.connectors.runtime.lag import measure_lag
from rowtide.core.records.position import Position, encode_position

MOVED = [SourceShard("s1", (), b"", b""), SourceShard("s2", ("s1",), b"", b"")]


class Quiet:
    """A table whose shards have no unread change."""

    async def table_name(self) -> str:
        return "t"

    async def shards(self) -> list[SourceShard]:
        return MOVED

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return encode_position(Position(shard_id, 1, 5))

    async def first_and_last(self) -> tuple[bytes, bytes]:
        return b"", b""


async def lag_behind(parent: ReaderLease) -> tuple[bool, object]:
    leases = MemoryLeases()
    start = Start({"s1": ""}, frozenset({"s1"}), snapshot=True, kept={})
    await leases.create(ReaderLease(START, position=start.text()))
    await leases.create(parent)
    lag = await measure_lag(cast(ApiSource, Quiet()), leases)
    return lag.none, lag.unread


async def test_rows_that_a_moved_shards_reader_left_are_still_to_be_read() -> None:
    """No reader had taken the new shard yet, and the connector was reported as done."""
    left = ReaderLease("s1", ended=True, pending=((b"m", b""),))
    assert await lag_behind(left) == (False, ((b"m", b""),))


async def test_a_moved_shard_whose_rows_were_read_has_nothing_left() -> None:
    assert await lag_behind(ReaderLease("s1", ended=True)) == (True, ())
