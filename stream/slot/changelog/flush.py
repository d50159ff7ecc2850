"""Writes a slot's changed chunks to the changelog, lazily, so that logs can be trimmed.

A flush is one Kafka transaction: every chunk changed since the last one, and per shard the mark
"complete up to here", all as of one moment, though serving goes on while a flush writes. So a
row's chunks in the changelog always tile the row, and a replay starts at the mark. Chunks are read
as they are sent: of a flush, keys alone are in memory.

A deleted row is written as a stamped delete first. Once a mark has passed it, a later flush sends
the tombstone that lets compaction remove it, and it goes from the local store too. A chunk of a row
that lives on, and no longer has it, gets its tombstone at once: a chunk that was written with its
removal covers its place. The row store keeps notes of those, so that a restart forgets none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import Change, ChangelogWriter
from rowtide.stream.shard.copy import Range
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore

__all__ = ["ChangelogFlush", "tombstone_stamp"]

logger = logging.getLogger(__name__)

STAMP_HEADER = "stamp"

NOBODYS = b"\0"
"""A key of the changelog that is removed, and never was there."""

SLICE = 500
"""Chunks looked up before other work gets its turn on the event loop."""


@dataclass(slots=True)
class Gathered:
    """What one flush writes, and what to remember once it stands."""

    count: int = 0
    flushed: dict[str, int] = field(default_factory=dict)
    taken: dict[str, set[bytes]] = field(default_factory=dict)
    graves: dict[bytes, int] = field(default_factory=dict)
    buried: list[bytes] = field(default_factory=list)
    removed: set[bytes] = field(default_factory=set)


def tombstone_stamp(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return the commit stamp of the delete that a tombstone finishes."""
    return next((int(value) for name, value in headers if name == STAMP_HEADER), 0)


class ChangelogFlush:
    """The flushes of one slot."""

    def __init__(self, writer: ChangelogWriter, rows: RowStore) -> None:
        self._writer = writer
        self._rows = rows
        self._closed = False
        self._graves: dict[bytes, int] = {}
        """Chunk keys of deleted rows that a mark has passed, with their stamps."""
        self._read_all = False
        """Whether the rows had all of the changelog once: what is new since then we wrote."""

    async def flush(
        self, shards: Iterable[ShardOwner], now_s: float, *, left: Sequence[Range] = ()
    ) -> int:
        """Write what changed, but for keys within ``left``; return the number of entries.

        Raises what ``ChangelogWriter.flush`` raises; the chunks stay dirty then.
        """
        gathered = Gathered()
        by_id = {shard.shard.shard_id: shard for shard in shards}
        removed = self._rows.removed(left)
        marks = [mark for owner in by_id.values() for mark in _taken(owner, gathered)]
        try:
            changes = self._changes(self._rows.snapshot(), removed, marks, gathered)
            first = next((change for change in changes if change is not None), None)
            if first is None:
                return 0
            position = await self._writer.flush(chain((first,), changes))
        except BaseException:
            for shard_id, keys in gathered.taken.items():
                by_id[shard_id].ledger.add(keys)
            raise
        self._rows.set_changelog_position(position, now_s, flushed=gathered.flushed)
        self._rows.write([(key, None) for key in gathered.buried if self._is_grave(key)])
        # What was written here, and is removed since, by whatever shard, keeps its note.
        told, get = gathered.removed, self._rows.get
        self._rows.forget_removed([k for k in removed if k in told or get(k) is not None])
        self._graves = gathered.graves
        return gathered.count

    def close(self) -> None:
        """Let a flush under way fail: what it reads keeps the rows' directory from being opened."""
        self._closed = True

    async def require_read(self, now_s: float) -> None:
        """Raise ``Unavailable`` unless the rows have read all of the changelog, as a flush proves.

        What is read of it ends where its broker says, and one that was deposed, and does not know
        it, says an old end. Raises what ``ChangelogWriter.flush`` raises, too.
        """
        read = self._rows.changelog_position()
        if read is None or not self._writer.ready:
            raise Unavailable("The partition is not available.")
        position = await self._writer.flush([(NOBODYS, None, [])])
        if position != read + 2 and not self._read_all:  # The entry and the transaction's end.
            raise Unavailable(f"the changelog was read to {read} and ends at {position}")
        self._read_all = True
        self._rows.set_changelog_position(position, now_s)

    def bury(self, graves: Mapping[bytes, int]) -> None:
        """Let the next flush send the tombstones of deleted rows that the changelog has, stamped.

        They are those of an earlier life: this one remembers its own.
        """
        self._graves |= graves

    async def remove(
        self, keys: Sequence[bytes], now_s: float, *, stamps: Mapping[bytes, int] | None = None
    ) -> None:
        """Remove what nobody needs any more from the changelog, then from the rows.

        These are chunks of a dropped table, or commits that no client asks for again, or rows that
        went elsewhere: where ``stamps`` has one, whoever has read the changelog up to some earlier
        place knows by it that all of the row is gone which is older.
        """
        found = stamps or {}
        entries: list[Change] = [(key, None, _stamped(found.get(key, 0))) for key in keys]
        position = await self._writer.flush(entries)
        self._rows.write([(key, None) for key in keys])
        self._rows.set_changelog_position(position, now_s)

    def _changes(
        self,
        get: Callable[[bytes], bytes | None],
        removed: Mapping[bytes, int],
        marks: Sequence[Change],
        into: Gathered,
    ) -> Iterator[Change | None]:
        """Yield what a flush writes as of now, its marks last; None now and then."""
        for change in chain(self._chunks(get, removed, into), self._tombstones(into), marks):
            into.count += change is not None
            yield change

    def _chunks(
        self, get: Callable[[bytes], bytes | None], removed: Mapping[bytes, int], into: Gathered
    ) -> Iterator[Change | None]:
        """Yield tombstones for removed chunks, then the dirty chunks, as ``get`` tells them."""
        for key, stamp in removed.items():
            if get(key) is None:
                into.removed.add(key)
                yield key, None, _stamped(stamp)
        dirty = sorted(key for keys in into.taken.values() for key in keys)
        for number, key in enumerate(dirty):
            if number % SLICE == SLICE - 1:
                yield None
                self._require_open()
            value = get(key)
            if value is None:
                continue
            if key[:1] == b"r" and header(value)[1] & DELETED:
                into.graves[key] = header(value)[4]
            yield key, value, []

    def _tombstones(self, into: Gathered) -> Iterator[Change]:
        """Yield the tombstones of rows whose stamped delete an earlier flush has written."""
        self._require_open()
        for key, stamp in self._graves.items():
            if key not in into.graves and self._is_grave(key):
                into.buried.append(key)
                yield key, None, _stamped(stamp)

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("The partition is not available.")

    def _is_grave(self, key: bytes) -> bool:
        value = self._rows.get(key)
        stamp = self._graves.get(key)
        return value is not None and bool(header(value)[1] & DELETED) and header(value)[4] == stamp


def _stamped(stamp: int) -> list[tuple[str, bytes]]:
    """Return the headers of a tombstone: of a row that is gone its stamp, else 0 and none."""
    return [(STAMP_HEADER, b"%d" % stamp)] if stamp else []


def _taken(owner: ShardOwner, into: Gathered) -> list[Change]:
    """Take a shard's dirty chunks over; return its mark as of now, unless nothing happened."""
    state, shard_id = owner.shard.state, owner.shard.shard_id
    if not owner.unflushed:
        return []
    into.taken[shard_id] = owner.ledger.take()
    into.flushed[shard_id] = state.applied
    return [(mark_key(shard_id), encode_mark(state), [])]
