"""Keeps one shard of a global index up with the logs of its table.

Mutations of the table carry in their records what each index learns of them. The owner of the
index's shard reads those logs, as far as they are acknowledged, and appends what it finds to its
own log: the changes, and in the same record how far it has read. So each is folded exactly once,
whatever crashes. The shards of the table are read in turn; one that can't be read is tried again.

Positions are offsets of the source's log; times are seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rowtide.core import key, record
from rowtide.core.errors import LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.core.index import Fed, decode_fed, feed_key, latest
from rowtide.core.record import IndexFeed, IndexWrite
from rowtide.core.schema import ShardRange
from rowtide.stream.log import Entry
from rowtide.stream.shard_owner import ShardOwner

__all__ = ["FeedLag", "IndexFeeder", "fed_position"]

logger = logging.getLogger(__name__)

ENTRIES_MAX = 500
"""Entries of the source that one record of the index is about, at most."""

READ_BYTES = 1024 * 1024
NOTED_EVERY = 5000
"""Entries without anything for this index after which how far it has read is noted all the same.
The source's log is kept from the last noted place on; after a crash reading begins there."""

IDLE_S = 0.5
"""How long a feeder sleeps when nothing wakes it: a source may have got another owner."""

RETRY_S = 0.2

Source = Callable[[str], ShardOwner]
"""Returns the open shard of that id. Raises ``Unavailable``."""


class FeedLag(NamedTuple):
    """How far an index is behind one shard of its table.

    ``behind`` counts entries of the log that were not looked at yet, ``behind_s`` is the time
    between the last commit there and the last one learned from.
    """

    source: str
    position: int
    end: int
    behind: int
    behind_s: float

    def told(self) -> dict[str, Any]:
        """Return it as operators see it."""
        return self._asdict()


def fed_position(owner: ShardOwner, source: str) -> Fed | None:
    """Return how far an index's shard has durably followed a source, None where it never began."""
    value = owner.rows.get(feed_key(owner.shard.table.table_id, source))
    return None if value is None else decode_fed(value)


class IndexFeeder:
    """Feeds ``owner``, a shard of a global index, from the shards ``sources`` returns."""

    def __init__(
        self, owner: ShardOwner, sources: Callable[[], Sequence[ShardRange]], find: Source
    ) -> None:
        self._owner = owner
        self._sources = sources
        self._find = find
        self._positions: dict[str, Fed] = {}
        self._wake = asyncio.Event()
        self._stopped = False

    def stop(self) -> None:
        """Submit nothing more: the shard is about to be sealed."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Feed until the shard closes."""
        while not (self._stopped or self._owner.closed):
            self._wake.clear()
            busy = False
            for shard in self._sources():
                try:
                    busy = await self._feed(shard.shard_id) or busy
                except (Unavailable, OutcomeUnknown) as error:
                    logger.debug("index %s: %s", self._owner.shard.table.name, error)
                    await asyncio.sleep(RETRY_S)
                except (LogTrimmed, record.CorruptRecord) as error:
                    # Cannot happen while the log is pinned; nothing is made up where it does.
                    table = self._owner.shard.table
                    logger.critical("index %s can't follow: %s", table.name, error)
                    return
            if not busy:
                await self._idle()

    async def begin(self, source: str, offset: int) -> None:
        """Begin to follow a source at an offset, unless it is followed already."""
        if self._position(source) is None:
            await self._owner.submit_hidden(IndexFeed(source, offset, 0, ()))

    def position(self, source: str) -> int:
        """Return the offset up to which a source was followed, exclusive."""
        at = self._position(source)
        return 0 if at is None else at.following

    def positions(self) -> dict[str, int]:
        """Return the offset up to which each source was followed, exclusive."""
        return {shard.shard_id: self.position(shard.shard_id) for shard in self._sources()}

    def lag(self, source: ShardOwner) -> FeedLag:
        """Return how far the index is behind a shard of its table."""
        at = self._position(source.shard.shard_id) or Fed(0, 0)
        behind = max(0, source.end - at.following)
        late_us = source.shard.state.stamp - at.stamp if behind and at.stamp else 0
        return FeedLag(
            source.shard.shard_id, at.following, source.end, behind, max(0, late_us) / 1_000_000
        )

    def _position(self, source: str) -> Fed | None:
        if self._stopped or self._owner.closed:
            raise Unavailable("The partition is not available.")
        return self._positions.get(source) or fed_position(self._owner, source)

    async def _idle(self) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _feed(self, source_id: str) -> bool:
        """Take the next slice of a source's log; return whether there was one."""
        source = self._find(source_id)
        source.followers.add(self._wake)
        at = self._position(source_id)
        if at is None:
            start, _ = await source.log.bounds()
            at = Fed(start, 0)
        if at.following >= source.end:
            return False
        entries = await _entries(source, at.following)
        if not entries:
            return False
        writes, following, stamp = _found(entries, self._owner)
        reached = Fed(following, max(stamp, at.stamp))
        if self._stopped:
            return False
        noted = fed_position(self._owner, source_id)
        if writes or noted is None or following - noted.following >= NOTED_EVERY:
            body = IndexFeed(source_id, reached.following, reached.stamp, latest(writes))
            await self._owner.submit_hidden(body)
        self._positions[source_id] = reached
        return True


async def _entries(source: ShardOwner, offset: int) -> list[Entry]:
    """Return acknowledged entries from ``offset`` on."""
    held = source.recent.read(offset, ENTRIES_MAX)
    entries = held or await source.log.read(offset, bytes_max=READ_BYTES)
    end = source.end
    return [entry for entry in entries[:ENTRIES_MAX] if entry.offset < end]


def _found(entries: Sequence[Entry], owner: ShardOwner) -> tuple[list[IndexWrite], int, int]:
    """Return what entries hold for an index's shard, the next offset and the last stamp."""
    number = owner.shard.table.table_id
    place = owner.shard.indexes.place()
    writes: list[IndexWrite] = []
    stamp = 0
    for entry in entries:
        envelope, body = record.decode_record(entry.value)
        if envelope.at != entry.offset:
            continue
        stamp = max(stamp, envelope.stamp)
        if isinstance(body, record.Put | record.Update | record.Delete | record.IndexBuild):
            writes += [w for w in body.indexes if w.table == number and _within(place, w)]
    return writes, entries[-1].offset + 1, stamp


def _within(place: ShardRange, write: IndexWrite) -> bool:
    if not place.begin and not place.end:
        return True
    encoded = key.encode(write.key)
    return place.begin <= encoded and (not place.end or encoded < place.end)
