"""Keeps one shard of a global index up to date with the logs of its table.

The records of the table's mutations have the changes of each index. The owner of the
index's shard reads the acknowledged part of those logs. It appends to its own log the
changes for its index, and in the same record how far it has read. So each change is
folded exactly once, whatever crashes. The shards of the table are read in turn; one that
cannot be read is retried.

Positions are offsets of the source's log; times are seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakSet

from rowtide.core.records import record
from rowtide.core.records.record import IndexFeed, IndexWrite
from rowtide.core.shard.index import Fed, decode_fed, feed_key, latest
from rowtide.core.values import key
from rowtide.core.values.errors import Elsewhere, LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.core.values.schema import ShardRange
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["IndexFeeder", "IndexProgress", "find_fed_position"]

logger = logging.getLogger(__name__)

ENTRIES_MAX = 500
"""Bound of the source's entries that one record of the index covers."""

READ_BYTES = 1024 * 1024
NOTED_EVERY = 5000
"""Entries without a change for this index after which the position is recorded anyway.
The source's log is kept from the last recorded position on; after a crash reading begins
there.
"""

IDLE_S = 0.5
"""Time for which a feeder sleeps without a wake-up: a source may have got another owner."""

RETRY_S = 0.2

STUCK_S = 10.0
"""Interval of the retries of a log that lacks needed entries, or has unreadable ones."""

Source = Callable[[str], ShardOwner]
"""Returns the open shard with that id. Raises ``Unavailable``."""


class IndexProgress(NamedTuple):
    """How far an index has followed a log.

    ``following`` is the next offset to read and ``stamp`` the last commit with a change
    for the index. ``noted`` is the offset from which the log is still needed after a
    crash. ``failed`` is the reason why the index cannot continue; empty if it can.
    """

    following: int
    stamp: int
    noted: int
    failed: str = ""


class Stuck(NamedTuple):
    """Why a source cannot be followed, and when it is retried (the event loop's seconds)."""

    reason: str
    again_s: float


def find_fed_position(owner: ShardOwner, source: str) -> Fed | None:
    """Return how far an index's shard has durably followed a source; None if it never began."""
    value = owner.rows.get(feed_key(owner.shard.table.table_id, source))
    return None if value is None else decode_fed(value)


class IndexFeeder:
    """Feeds ``owner``, a shard of a global index, from the shards that ``sources`` returns.

    ``find`` returns a source that is open here, ``log_of`` the log of any source.
    """

    def __init__(
        self,
        owner: ShardOwner,
        sources: Callable[[], Sequence[ShardRange]],
        find: Source,
        log_of: Callable[[str], Log],
    ) -> None:
        self._owner = owner
        self._sources = sources
        self._find = find
        self._log_of = log_of
        self._logs: dict[str, Log] = {}
        """Logs of the sources that other workers own."""
        self._positions: dict[str, Fed] = {}
        self._anew: set[str] = set()
        """Sources that were trimmed beyond their first position: they are read from their starts.
        """
        self._stuck: dict[str, Stuck] = {}
        self._wake = asyncio.Event()
        self._heard = WeakSet[ShardOwner]()
        """Sources that wake this feeder."""
        self._stopped = False

    def stop(self) -> None:
        """Submit nothing more: the shard is about to be sealed."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Feed until the shard closes."""
        try:
            await self._follow()
        finally:
            for source in self._heard:
                source.readers.unfollow(self._wake)

    async def _follow(self) -> None:
        while not (self._stopped or self._owner.is_closed):
            self._wake.clear()
            busy = False
            for shard in self._in_turn():
                try:
                    busy = await self._take_slice(shard) or busy
                    self._stuck.pop(shard.shard_id, None)
                except (Unavailable, OutcomeUnknown) as error:
                    logger.debug("index %s: %s", self._owner.shard.table.name, error)
                    await asyncio.sleep(RETRY_S)
                except (LogTrimmed, record.CorruptRecord) as error:
                    if isinstance(error, LogTrimmed) and self._begin_anew(shard.shard_id):
                        busy = True
                        continue
                    self._rest(shard.shard_id, str(error))
            if not busy:
                await self._idle()

    def _begin_anew(self, source: str) -> bool:
        """Restart at the present start of a source's log, unless that was tried, or would
        lose changes.

        If no change was read yet, the trim was decided before the index existed. A later
        trim keeps everything that was not recorded.
        """
        if source in self._anew or self._has_learned(source):
            return False
        self._anew.add(source)
        return True

    def _rest(self, source: str, reason: str) -> None:
        """Skip a source for a while, and its children with it.

        This cannot happen while the log is pinned. If it does, no change is invented.
        """
        before = self._stuck.get(source)
        if before is None or before.reason != reason:
            name = self._owner.shard.table.name
            logger.critical("index %s cannot follow shard %s: %s", name, source, reason)
        self._stuck[source] = Stuck(reason, asyncio.get_running_loop().time() + STUCK_S)

    def _in_turn(self) -> list[ShardRange]:
        """Return the sources that do not rest, and whose parents were followed to their ends."""
        now_s = asyncio.get_running_loop().time()
        resting = {name for name, stuck in self._stuck.items() if now_s < stuck.again_s}
        sources = self._sources()
        unread = {s.shard_id for s in sources if s.sealed_us and not self._has_ended(s)}
        return [
            s
            for s in sources
            if not (s.sealed_us and s.shard_id not in unread)
            and not unread.intersection(s.parents)
            and s.shard_id not in resting
        ]

    def _has_ended(self, source: ShardRange) -> bool:
        """True if a log was followed to its end, and that is recorded: we no longer need it."""
        return _is_behind(find_fed_position(self._owner, source.shard_id), source)

    async def begin(self, source: str, offset: int) -> None:
        """Begin to follow a source at an offset, unless it is already followed."""
        if self._position(source) is None:
            await self._owner.submit_hidden(IndexFeed(source, offset, 0, ()))

    def find_progress(self) -> dict[str, IndexProgress]:
        """Return how far each source was followed. Raises ``Unavailable``."""
        found: dict[str, IndexProgress] = {}
        for shard in self._sources():
            at = self._position(shard.shard_id) or Fed(0, 0)
            noted = find_fed_position(self._owner, shard.shard_id) or Fed(0, 0)
            stuck = self._stuck.get(shard.shard_id)
            reason = "" if stuck is None else stuck.reason
            found[shard.shard_id] = IndexProgress(at.following, at.stamp, noted.following, reason)
        return found

    def _position(self, source: str) -> Fed | None:
        if self._stopped or self._owner.is_closed:
            raise Unavailable
        return self._find_fed(source)

    def _find_fed(self, source: str) -> Fed | None:
        """Return how far a source was followed; None if that has not begun."""
        return self._positions.get(source) or find_fed_position(self._owner, source)

    def _has_learned(self, source: str) -> bool:
        """True if a source had any change for the index. Then all later entries are needed."""
        at = self._find_fed(source)
        return at is not None and at.stamp > 0

    async def _idle(self) -> None:
        try:
            async with asyncio.timeout(IDLE_S):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _take_slice(self, source: ShardRange) -> bool:
        """Take the next slice of a source's log; return True if there was one."""
        source_id = source.shard_id
        at = self._position(source_id)
        if at is not None and _is_behind(at, source):
            # Its end was read before the catalog had it as an end.
            await self._owner.submit_hidden(IndexFeed(source_id, at.following, at.stamp, ()))
            return True
        if source_id in self._anew:
            at = None
        began, entries = await self._entries(source_id, at)
        if self._stopped:
            return False
        if at is None and not entries and _is_behind(Fed(began, 0), source):
            # All of it was trimmed before the index existed: it has no change for us.
            self._anew.discard(source_id)
            await self._owner.submit_hidden(IndexFeed(source_id, began, 0, ()))
            return True
        if not entries:
            return False
        self._anew.discard(source_id)
        before = at.stamp if at is not None else 0
        writes, following, stamp = _extract_writes(entries, self._owner, learned=before > 0)
        reached = Fed(following, max(stamp, before))
        noted = find_fed_position(self._owner, source_id)
        ended = _is_behind(reached, source)
        if writes or noted is None or ended or following - noted.following >= NOTED_EVERY:
            body = IndexFeed(source_id, reached.following, reached.stamp, latest(writes))
            await self._owner.submit_hidden(body)
        self._positions[source_id] = reached
        return True

    async def _entries(self, source_id: str, at: Fed | None) -> tuple[int, list[Entry]]:
        """Return our position in a source, or its start, and the acknowledged entries
        from there.
        """
        try:
            source = self._find(source_id)
        except Elsewhere:
            return await self._entries_elsewhere(source_id, at)
        source.readers.follow(self._wake)
        self._heard.add(source)
        offset = (await source.log.bounds())[0] if at is None else at.following
        end = source.end
        if offset >= end:
            return offset, []
        held = source.readers.read_recent(offset, ENTRIES_MAX)
        entries = held or await source.log.read(offset, bytes_max=READ_BYTES)
        return offset, [entry for entry in entries[:ENTRIES_MAX] if entry.offset < end]

    async def _entries_elsewhere(self, source_id: str, at: Fed | None) -> tuple[int, list[Entry]]:
        """Return entries of another worker's shard: a valid entry in its log stays valid."""
        log = self._logs.get(source_id)
        if log is None:
            log = self._logs[source_id] = self._log_of(source_id)
        start, end = await log.bounds()
        offset = start if at is None else at.following
        if offset >= end:
            return offset, []
        return offset, (await log.read(offset, bytes_max=READ_BYTES))[:ENTRIES_MAX]


def _is_behind(at: Fed | None, source: ShardRange) -> bool:
    """True if a position is beyond the end that the catalog has for a log."""
    return source.sealed_us > 0 and at is not None and at.following > source.sealed_at


def _extract_writes(
    entries: Sequence[Entry], owner: ShardOwner, *, learned: bool
) -> tuple[list[IndexWrite], int, int]:
    """Return the changes for an index's shard in entries, the next offset and the last stamp.

    The stamp is 0 if no change was read before, and none of these is for the index.
    """
    number = owner.shard.table.table_id
    place = owner.shard.indexes.place()
    writes: list[IndexWrite] = []
    stamp = 0
    for entry in entries:
        envelope, body = record.decode_record(entry.value)
        if envelope.at != entry.offset:
            continue
        if isinstance(
            body, record.PutBody | record.UpdateBody | record.DeleteBody | record.IndexBuild
        ):
            ours = [write for write in body.indexes if write.table == number]
            writes += [write for write in ours if _is_within(place, write)]
            learned = learned or bool(ours)
        learned = learned or (isinstance(body, record.IndexBuild) and body.table == number)
        if learned:
            stamp = max(stamp, envelope.stamp)
    return writes, entries[-1].offset + 1, stamp


def _is_within(place: ShardRange, write: IndexWrite) -> bool:
    if not place.begin and not place.end:
        return True
    encoded = key.encode(write.key)
    return place.begin <= encoded and (not place.end or encoded < place.end)
