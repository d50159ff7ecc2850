"""Reads one table's stream as pages of records, whatever the source is."""

from __future__ import annotations

from typing import NamedTuple

from rowtide.client.changes.source import ChangePage, ChangeSource, RowPage, SourceShard
from rowtide.console.feed.feed_position import (
    KIND_OVER,
    FeedPosition,
    ShardPosition,
    encode_token,
    table_tag,
)
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.page_ring import FeedPage, FeedRecord
from rowtide.core.records.change import Change
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.core.values.schema import KeyColumn

__all__ = ["READ_RECORDS_MAX", "RETRIED", "WAIT_S", "StreamReading", "TableStream"]

READ_RECORDS_MAX = 1000
"""Records of one page. To make all their texts holds the event loop for about 10 ms."""
WAIT_S = 2.0
"""So long the worker holds a read back while there is nothing new."""
RETRIED = (Unavailable, OutcomeUnknown)
"""Reading changes nothing, so an unknown outcome is no reason to stop."""
SECOND_US = 1_000_000
RETENTION_MARGIN_US = 60_000_000
"""Clocks of workers differ by less."""


class TableStream(NamedTuple):
    """A table and one life of its stream. ``hidden`` columns never leave the console."""

    instance: str
    table: str
    stream_id: str
    enabled_at_us: int
    retention_us: int
    key: tuple[KeyColumn, ...]
    hidden: frozenset[str] = frozenset()

    def token_of(self, frontier: Frontier) -> str:
        """Return the token of a frontier. Raises ``TokenTooLong``."""
        return encode_token(self.position_of(frontier))

    @property
    def over_token(self) -> str:
        """Return the token of a viewer whose feed is over for good."""
        tag = table_tag(self.instance, self.table)
        return encode_token(FeedPosition(tag, self.enabled_at_us, (), KIND_OVER))

    def position_of(self, frontier: Frontier) -> FeedPosition:
        """Return the position of a frontier."""
        tag = table_tag(self.instance, self.table)
        shards = [
            ShardPosition(name, offset, frontier.times[name] // SECOND_US)
            for name, offset in sorted(frontier.offsets.items())
        ]
        return FeedPosition(tag, self.enabled_at_us, tuple(shards))

    def frontier_of(self, position: FeedPosition) -> Frontier:
        """Return the frontier of a position."""
        return Frontier(
            {shard.shard: shard.offset for shard in position.shards},
            {shard.shard: shard.time_s * SECOND_US for shard in position.shards},
        )


class StreamReading:
    """Reads of a stream. All methods raise ``StoreError``, ``LogTrimmed`` among them."""

    def __init__(self, stream: TableStream, source: ChangeSource) -> None:
        self.stream = stream
        self.source = source
        self.known_now_us = 0
        """The server's time at some earlier moment."""

    async def now_us(self) -> int:
        """Return the server's time."""
        self.known_now_us = max(self.known_now_us, await self.source.now_us())
        return self.known_now_us

    async def list_shards(self) -> list[SourceShard]:
        """Return the shards that are kept, parents before children."""
        return await self.source.shards()

    async def find_offset(self, shard: str, since_us: int | None) -> int:
        """Return the offset of the first change at or after a time; None: the oldest kept."""
        return decode_position(await self.source.position(shard, since_us)).offset

    async def find_first_offset(self, child: str, time_us: int) -> int:
        """Return where a shard begins whose parents are read.

        ``time_us``: all its changes were committed later. Raises ``LogTrimmed`` if some of them
        may have been trimmed.
        """
        offset = await self.find_offset(child, None)
        if await self.now_us() - time_us > self.stream.retention_us - RETENTION_MARGIN_US:
            raise LogTrimmed(f"The first changes of shard {child} may no longer be kept.")
        return offset

    async def read(self, shard: str, offset: int, *, wait_s: float = 0.0) -> FeedPage:
        """Return the page at an offset; where there is nothing yet, wait up to ``wait_s``."""
        return self._page_of(shard, offset, await self.read_changes(shard, offset, wait_s=wait_s))

    async def read_changes(self, shard: str, offset: int, *, wait_s: float = 0.0) -> ChangePage:
        """Return the same as changes."""
        position = encode_position(Position(shard, self.stream.enabled_at_us, offset))
        return await self.source.read(position, limit=READ_RECORDS_MAX, wait_s=wait_s)

    def record_of(self, change: Change) -> FeedRecord:
        """Return a change as viewers get it, without what is hidden."""
        return FeedRecord.of(change, self.stream.hidden)

    async def read_rows(self, shard: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        """Return rows of an open shard, see ``ChangeSource.rows``."""
        return await self.source.rows(shard, begin, end, limit=limit)

    def _page_of(self, shard: str, offset: int, page: ChangePage) -> FeedPage:
        records = [*map(self.record_of, page.changes)]
        last_us = page.changes[-1].stamp if page.changes else 0
        if page.following is None:
            # What comes next is in other shards, and may be older than now.
            end = records[-1].sequence + 1 if records else offset
            return FeedPage(shard, offset, end, records, last_us, has_ended=True)
        end = decode_position(page.following).offset
        time_us = max(last_us, self.known_now_us) if page.at_end else last_us
        return FeedPage(shard, offset, end, records, time_us)
