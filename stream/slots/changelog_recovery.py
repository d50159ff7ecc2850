"""Brings a slot's rows up to the end of its changelog.

Entries never lower what is here already: see ``RowStore.apply_changelog``. How far the changelog
was read is remembered with every page, so a crash in the middle begins there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from rowtide.core.chunk import header
from rowtide.core.chunk_merge import deleted_row
from rowtide.core.mark import mark_key
from rowtide.core.schema import ShardRange, Table
from rowtide.stream.logs.changelog import ChangelogEntry, ChangelogReader
from rowtide.stream.shards.copy import row_ranges
from rowtide.stream.shards.row_store import RowStore, removed_key
from rowtide.stream.slots.changelog_flush import tombstone_stamp

__all__ = ["StartPassed", "recover_rows", "settled_stamps"]

Told = tuple[int, bytes, bytes | None]
"""What to fold in: an offset of the changelog, a key and its value; None removes."""


class StartPassed(Exception):
    """The changelog begins behind what the local rows have read of it."""


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
    gone, ``Unavailable``, and what ``require_read`` raises of entries that are about to be folded.
    """
    position = rows.changelog_position()
    start = await reader.start()
    if position is not None and position < start:
        raise StartPassed(f"changelog position {position} is below its start {start}")
    settled = settled_stamps(rows, shards)
    async for entries in reader.read(max(start, position or 0), until):
        if require_read is not None:
            require_read(entries)
        rows.apply_changelog(_page(entries, rows, table_known, settled))
        rows.set_changelog_position(reader.position, time.time())
        await asyncio.sleep(0)
    rows.set_changelog_position(reader.position, time.time())


def settled_stamps(
    rows: RowStore, shards: Iterable[tuple[Table, ShardRange]]
) -> Callable[[bytes], int]:
    """Return what tells for a row's key up to which stamp a removal is of no concern here; or -1.

    Rows that left a slot are removed from it, and may come back with a copied shard. Who follows
    that shard's log may have them before it reads in the changelog that they had gone: where the
    log is folded here, it alone says what of the time before the shard is gone. What was deleted
    in the shard's own time is another matter: a mark may come out of the changelog, too, and of
    what it covers a deletion may be told further on, where it was compacted to.
    """
    held: list[tuple[bytes, bytes]] = []
    copied: list[tuple[bytes, bytes, int]] = []
    for table, shard in shards:
        ranges = row_ranges(table, shard)
        if not shard.sealed_us:
            held += ranges
        mark = rows.get(mark_key(shard.shard_id))
        if shard.copied and mark is not None:
            copied += [(low, high, shard.floor_us) for low, high in ranges]

    def settled(chunk_key: bytes) -> int:
        if not copied or not any(low <= chunk_key < high for low, high in held):
            return -1
        return max((stamp for low, high, stamp in copied if low <= chunk_key < high), default=-1)

    return settled


def _page(
    entries: Sequence[ChangelogEntry],
    rows: RowStore,
    table_known: Callable[[int], bool],
    settled: Callable[[bytes], int],
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
    settled: Callable[[bytes], int],
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
        if stamp <= settled(entry.key):
            return [(entry.offset, entry.key, None)]  # Only what is deleted here, too.
    return _folded(entry)


def _folded(entry: ChangelogEntry) -> list[Told]:
    """Return what an entry says: a row's tombstone also that it was deleted, and when."""
    told = (entry.offset, entry.key, entry.value)
    stamp = 0 if entry.value is not None else tombstone_stamp(entry.headers)
    return [(entry.offset, entry.key, deleted_row(stamp)), told] if stamp else [told]
