"""Writes a slot's changed chunks to the changelog, lazily, so that logs can be trimmed.

A flush is one Kafka transaction. It has every chunk that changed since the last one, and
per shard the mark "complete up to here". All of them are as of one moment, though the
slot serves while the flush writes. So a row's chunks in the changelog always cover the
row without overlap, and a replay starts at the mark. Chunks are read as they are sent:
memory holds only the keys of a flush.

A deleted row is first written as a stamped delete. Once a mark has passed it, a later
flush sends the tombstone that lets compaction remove it. The local store then removes it
too. A removed chunk of a row that still exists gets its tombstone at once, because a
chunk that was written with its removal covers its place. The row store keeps notes of
those, so that a restart forgets none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rowtide.core.rows.chunk import DELETED, FLAGS_AT, header
from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import Change, ChangelogWriter, Headers
from rowtide.stream.shard.copy import Range
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore

__all__ = ["ChangelogFlush", "tombstone_stamp"]

logger = logging.getLogger(__name__)

STAMP_HEADER = "stamp"

NOBODYS = b"\0"
"""A key of the changelog that is removed, and never existed."""

NO_HEADERS: Headers = []
"""The headers of most changes; never changed."""

SLICE = 250
"""Chunks that are looked up before other tasks get their turn on the event loop."""


@dataclass(slots=True)
class Gathered:
    """The content of one flush, and the state to keep once it is committed."""

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
        """True if the rows once had all of the changelog: we wrote everything newer."""

    async def flush(
        self, shards: Iterable[ShardOwner], now_s: float, *, left: Sequence[Range] = ()
    ) -> int:
        """Write changed chunks, except keys within ``left``; return the number of entries.

        Raises the errors of ``ChangelogWriter.flush``; the chunks then stay dirty.
        """
        gathered = Gathered()
        by_id = {shard.shard.shard_id: shard for shard in shards}
        removed = self._rows.find_removed(left)
        marks = [mark for owner in by_id.values() for mark in _take_dirty(owner, gathered)]
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
        # A chunk that was written here and removed since, by any shard, keeps its note.
        written, get = gathered.removed, self._rows.get
        self._rows.forget_removed([k for k in removed if k in written or get(k) is not None])
        self._graves = gathered.graves
        return gathered.count

    def close(self) -> None:
        """Let a running flush fail: its reads keep the rows' directory from being opened."""
        self._closed = True

    async def require_read(self, now_s: float) -> None:
        """Raise ``Unavailable`` unless the rows have read all of the changelog; a flush
        proves it.

        A broker determines the end of a read, and a deposed broker may report an old end.
        Raises the errors of ``ChangelogWriter.flush`` too.
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
        """Let the next flush send the tombstones of deleted rows in the changelog, stamped.

        These rows are from an earlier life: this one remembers its own.
        """
        self._graves |= graves

    async def remove(
        self, keys: Sequence[bytes], now_s: float, *, stamps: Mapping[bytes, int] | None = None
    ) -> None:
        """Remove unneeded chunks from the changelog, then from the rows.

        These are chunks of a dropped table, commits that no client repeats any more, or
        rows that left the slot. A stamp in ``stamps`` shows readers of an earlier part of
        the changelog that all older parts of the row are gone.
        """
        found = stamps or {}
        entries: list[Change] = [(key, None, _stamp_headers(found.get(key, 0))) for key in keys]
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
        """Return the changes of a flush as of now, its marks last; None at intervals."""
        into.count += len(marks)
        return chain(self._chunks(get, removed, into), self._tombstones(into), marks)

    def _chunks(
        self, get: Callable[[bytes], bytes | None], removed: Mapping[bytes, int], into: Gathered
    ) -> Iterator[Change | None]:
        """Yield tombstones for removed chunks, then the dirty chunks, as ``get`` returns them."""
        for key, stamp in removed.items():
            if get(key) is None:
                into.removed.add(key)
                into.count += 1
                yield key, None, _stamp_headers(stamp)
        dirty = sorted(chain.from_iterable(into.taken.values()))
        for at in range(0, len(dirty), SLICE):
            if at:
                yield None
                self._require_open()
            found = _find_chunks(get, dirty[at : at + SLICE], into)
            into.count += len(found)
            yield from found

    def _tombstones(self, into: Gathered) -> Iterator[Change]:
        """Yield the tombstones of rows whose stamped delete an earlier flush has written."""
        self._require_open()
        for key, stamp in self._graves.items():
            if key not in into.graves and self._is_grave(key):
                into.buried.append(key)
                into.count += 1
                yield key, None, _stamp_headers(stamp)

    def _require_open(self) -> None:
        if self._closed:
            raise Unavailable("The partition is not available.")

    def _is_grave(self, key: bytes) -> bool:
        value = self._rows.get(key)
        stamp = self._graves.get(key)
        return value is not None and bool(header(value)[1] & DELETED) and header(value)[4] == stamp


def _find_chunks(
    get: Callable[[bytes], bytes | None], keys: Sequence[bytes], into: Gathered
) -> list[Change]:
    """Return the present chunks of ``keys``; note those of deleted rows in ``into``."""
    found: list[Change] = []
    for key in keys:
        value = get(key)
        if value is None:
            continue
        if key[:1] == b"r" and value[FLAGS_AT] & DELETED:
            into.graves[key] = header(value)[4]
        found.append((key, value, NO_HEADERS))
    return found


def _stamp_headers(stamp: int) -> list[tuple[str, bytes]]:
    """Return the headers of a tombstone: the stamp of a deleted row, or none for stamp 0."""
    return [(STAMP_HEADER, b"%d" % stamp)] if stamp else []


def _take_dirty(owner: ShardOwner, into: Gathered) -> list[Change]:
    """Take a shard's dirty chunks; return its mark as of now, or nothing if it has no change."""
    state, shard_id = owner.shard.state, owner.shard.shard_id
    if not owner.has_unflushed:
        return []
    into.taken[shard_id] = owner.ledger.take()
    into.flushed[shard_id] = state.applied
    return [(mark_key(shard_id), encode_mark(state), [])]
