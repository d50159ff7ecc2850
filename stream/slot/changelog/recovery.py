"""Brings a slot's rows up to the end of its changelog.

Entries never lower what is here already: see ``RowStore.apply_changelog``. How far the changelog
was read is remembered with every page, so a crash in the middle begins there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.rows.chunk_merge import deleted_row
from rowtide.core.shard.mark import mark_key, mark_position
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.changelog import ChangelogEntry, ChangelogReader
from rowtide.stream.shard.copy import Range, row_ranges
from rowtide.stream.shard.row_store import RowStore, passed_over_key, removed_key
from rowtide.stream.slot.changelog.flush import tombstone_stamp

__all__ = ["SettledStamps", "StartPassed", "recover_rows"]

Told = tuple[int, bytes, bytes | None]
"""What to fold in: an offset of the changelog, a key and its value; None removes."""


class StartPassed(Exception):
    """The changelog does not tell any more what the local rows lack."""


async def recover_rows(
    rows: RowStore,
    reader: ChangelogReader,
    table_known: Callable[[int], bool],
    shards: Iterable[tuple[Table, ShardRange]] = (),
    *,
    until: int | None = None,
    require_read: Callable[[Sequence[ChangelogEntry]], None] | None = None,
) -> None:
    """Fold in what the rows lack. ``table_known`` says whether a table or an index still exists.

    ``shards`` are the slot's, ended ones too. The rows are brought to the changelog's present end,
    or to ``until``, an end of before. Raises ``StartPassed`` where entries that were never read are
    gone, where a shard was forgotten that tells what to pass over, and as ``SettledStamps.meet``;
    ``Unavailable``, and what ``require_read`` raises of entries that are about to be folded.
    """
    shards, began_s = list(shards), time.time()
    position = rows.changelog_position()
    # Until all is read the rows are as old as they were: what is removed is kept for a day alone.
    noted_s = (rows.changelog_time() if position is not None else None) or began_s
    start = await reader.start()
    if position is not None and position < start:
        raise StartPassed(f"changelog position {position} is below its start {start}")
    if forgotten := _forgotten(rows, shards):
        raise StartPassed(f"{forgotten} is forgotten, and was not read of in the changelog")
    settled = SettledStamps(rows, shards)
    async for entries in reader.read(max(start, position or 0), until):
        if require_read is not None:
            require_read(entries)
        told = _page(entries, rows, table_known, settled)
        # At once: what is behind a mark is told from what is before it by the place alone.
        rows.apply_changelog(told, read=(reader.position, noted_s))
        await asyncio.sleep(0)
    rows.set_changelog_position(reader.position, began_s)


def _forgotten(rows: RowStore, shards: Sequence[tuple[Table, ShardRange]]) -> str:
    """Return a shard whose log is folded here, beside rows that came to the slot, or "".

    It is one that the catalog has forgotten, and of which no mark was read in the changelog yet.
    What is removed there may be of a time before these rows came, and nothing tells any more.
    """
    known = {shard.shard_id for _, shard in shards}
    parents = {name for _, shard in shards if shard.came for name in shard.parents}
    gone = (name for name in sorted(parents - known) if rows.get(mark_key(name)) is not None)
    return next((name for name in gone if rows.flushed(name) < 0), "")


class SettledStamps:
    """What tells of a row's key up to which stamp a removal is of no concern here.

    Rows that left a slot are removed from it, and may come back with a copied shard. Who follows
    that shard's log may have them before it reads in the changelog that they had gone: where the
    log is folded here, it alone says what of the time before the shard is gone. All of that stands
    in the changelog before the shard's first mark. What is read behind any mark of it was removed
    in the shard, though perhaps long before: what a copy brings keeps its stamps.
    """

    def __init__(self, rows: RowStore, shards: Iterable[tuple[Table, ShardRange]]) -> None:
        self._held: list[Range] = []
        self._folded: dict[bytes, _Folded] = {}
        for table, shard in shards:
            ranges = row_ranges(table, shard)
            if not shard.sealed_us:
                self._held += ranges
            mark = rows.get(mark_key(shard.shard_id))
            if shard.copied and mark is not None and rows.flushed(shard.shard_id) < 0:
                noted = rows.get(passed_over_key(shard.shard_id)) is not None
                self._folded[mark_key(shard.shard_id)] = _Folded(shard, ranges, mark, noted)

    def passes_over(self, chunk_key: bytes, stamp: int, *, lives: bool) -> list[str] | None:
        """Return a list if a removal can be ignored, None if it must be applied.

        The list has the shards of which only a part of the copy may be here while the row
        ``lives``: the rest may have removed it.
        """
        if not self._folded or not any(low <= chunk_key < high for low, high in self._held):
            return None
        found = [f for f in self._folded.values() if f.settles(chunk_key, stamp)]
        for folded in found:
            folded.noted = folded.noted or (lives and not folded.whole)
        return [f.shard.shard_id for f in found if f.noted] if found else None

    def meet(self, mark: bytes, value: bytes) -> str | None:
        """Take note of a mark of the changelog; return the shard where that was not known yet.

        Raises ``StartPassed`` where it is further than a part of a copy is here, beside which
        removals were passed over: they may have been those of the rest.
        """
        folded = self._folded.pop(mark, None)
        if folded is None:
            return None
        shard_id = folded.shard.shard_id
        if folded.noted and mark_position(value)[0] > folded.applied:
            raise StartPassed(f"a part of the copy of {shard_id} was folded, and is behind")
        return shard_id


class _Folded:
    """A copied shard whose log is folded here, of which no mark was read in the changelog yet."""

    def __init__(self, shard: ShardRange, ranges: list[Range], mark: bytes, noted: bool) -> None:
        self.shard = shard
        self.applied, stamp = mark_position(mark)
        self.whole = stamp > shard.floor_us  # What is copied has no later stamp.
        self.noted = noted and not self.whole  # Else the rest has come since.
        self._ranges = ranges

    def settles(self, chunk_key: bytes, stamp: int) -> bool:
        """True if a removal's stamp is from before the shard."""
        within = any(low <= chunk_key < high for low, high in self._ranges)
        return within and stamp <= self.shard.floor_us


def _page(
    entries: Sequence[ChangelogEntry],
    rows: RowStore,
    table_known: Callable[[int], bool],
    settled: SettledStamps,
) -> list[Told]:
    """Return what to fold in for many entries."""
    told: list[Told] = []
    known = b""
    for entry in entries:
        offset, key, value, _ = entry
        # Written out: most are chunks, one after another of the same table.
        if value is not None and key[:5] == known:
            told.append((offset, key, value))
            continue
        told += _told(entry, rows, table_known, settled)
        if key[:1] == b"r" and table_known(int.from_bytes(key[1:5], "big")):
            known = key[:5]
    return told


def _told(
    entry: ChangelogEntry,
    rows: RowStore,
    table_known: Callable[[int], bool],
    settled: SettledStamps,
) -> Sequence[Told]:
    """Return what to fold in for an entry.

    Leftovers of dropped tables are but noted, for the next flush to remove. Tombstones of rows
    that were deleted, then written again, are passed over: the local rows may hold the later
    write, and the log is not read again.
    """
    if entry.key[:1] == b"r" and not table_known(int.from_bytes(entry.key[1:5], "big")):
        return [(entry.offset, removed_key(entry.key), None if entry.value is None else b"")]
    if entry.key[:1] == b"r" and entry.value is None:
        stored = rows.get(entry.key)
        stamp = tombstone_stamp(entry.headers)
        if stored is not None and header(stored)[4] > stamp:
            return []
        lives = stored is not None and not header(stored)[1] & DELETED
        if (partly := settled.passes_over(entry.key, stamp, lives=lives)) is not None:
            notes = [(entry.offset, passed_over_key(name), b"") for name in partly]
            return [*notes, (entry.offset, entry.key, None)]  # Only what is deleted here, too.
    if entry.value is not None and (shard_id := settled.meet(entry.key, entry.value)):
        return [(entry.offset, passed_over_key(shard_id), None), *_folded(entry)]
    return _folded(entry)


def _folded(entry: ChangelogEntry) -> list[Told]:
    """Return what an entry says: a row's tombstone also that it was deleted, and when."""
    told = (entry.offset, entry.key, entry.value)
    stamp = 0 if entry.value is not None else tombstone_stamp(entry.headers)
    return [(entry.offset, entry.key, deleted_row(stamp)), told] if stamp else [told]
