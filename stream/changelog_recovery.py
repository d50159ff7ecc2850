"""Brings a slot's rows up to the end of its changelog.

Entries never lower what is here already: see ``RowStore.apply_changelog``. How far the changelog
was read is remembered with every page, so a crash in the middle begins there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from rowtide.core.chunk import header
from rowtide.core.chunk_merge import deleted_row
from rowtide.stream.changelog_flush import tombstone_stamp
from rowtide.stream.kafka_changelog import ChangelogEntry, ChangelogReader
from rowtide.stream.row_store import RowStore, removed_key

__all__ = ["StartPassed", "recover_rows"]

Told = tuple[int, bytes, bytes | None]
"""What to fold in: an offset of the changelog, a key and its value; None removes."""


class StartPassed(Exception):
    """The changelog begins behind what the local rows have read of it."""


async def recover_rows(
    rows: RowStore, reader: ChangelogReader, table_known: Callable[[int], bool]
) -> None:
    """Fold in what the rows lack. ``table_known`` says whether a table or an index still exists.

    Raises ``StartPassed`` where entries that were never read are gone, and ``Unavailable``.
    """
    position = rows.changelog_position()
    start = await reader.start()
    if position is not None and position < start:
        raise StartPassed(f"changelog position {position} is below its start {start}")
    async for entries in reader.read(max(start, position or 0)):
        rows.apply_changelog(_page(entries, rows, table_known))
        rows.set_changelog_position(reader.position, time.time())
        await asyncio.sleep(0)
    rows.set_changelog_position(reader.position, time.time())


def _page(
    entries: Sequence[ChangelogEntry], rows: RowStore, table_known: Callable[[int], bool]
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
        told += _told(entry, rows, table_known)
        if key[:1] == b"r" and table_known(int.from_bytes(key[1:5], "big")):
            known = key[:5]
    return told


def _told(
    entry: ChangelogEntry, rows: RowStore, table_known: Callable[[int], bool]
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
        if stored is not None and header(stored)[4] > tombstone_stamp(entry.headers):
            return []
    return _folded(entry)


def _folded(entry: ChangelogEntry) -> list[Told]:
    """Return what an entry says: a row's tombstone also that it was deleted, and when."""
    told = (entry.offset, entry.key, entry.value)
    stamp = 0 if entry.value is not None else tombstone_stamp(entry.headers)
    return [(entry.offset, entry.key, deleted_row(stamp)), told] if stamp else [told]
