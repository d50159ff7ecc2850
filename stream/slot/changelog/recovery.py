"""Brings a slot's rows up to the end of its changelog.

Entries never lower what is already here: see ``RowStore.apply_changelog``. The position
is stored with every page, so after a crash the read continues there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.rows.chunk_merge import encode_deletion
from rowtide.core.shard.mark import mark_key, mark_position
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.changelog import ChangelogEntry, ChangelogReader
from rowtide.stream.shard.copy import Range, row_ranges
from rowtide.stream.shard.row_store import RowStore, removal_key, skip_key
from rowtide.stream.slot.changelog.flush import tombstone_stamp

__all__ = ["SettledStamps", "StartPassed", "recover_rows"]

Fold = tuple[int, bytes, bytes | None]
"""An entry to fold: an offset of the changelog, a key and its value; None removes."""


class StartPassed(Exception):
    """The changelog no longer has the entries that the local rows lack."""


async def recover_rows(
    rows: RowStore,
    reader: ChangelogReader,
    table_known: Callable[[int], bool],
    shards: Iterable[tuple[Table, ShardRange]] = (),
    *,
    until: int | None = None,
    require_read: Callable[[Sequence[ChangelogEntry]], None] | None = None,
) -> None:
    """Fold the missing entries. ``table_known`` is true if a table or an index still exists.

    ``shards`` are the slot's, ended ones too. The rows are brought to the changelog's
    present end, or to ``until``, an earlier end. Raises ``StartPassed`` if unread entries
    are gone, if a shard was forgotten that decides which removals to skip, and like
    ``SettledStamps.meet``. Raises ``Unavailable``, and the errors of ``require_read`` for
    entries that are about to be folded.
    """
    shards, began_s = list(shards), time.time()
    position = rows.changelog_position()
    # Until all is read the rows keep their age: removals are kept for a day only.
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
        page = _page(entries, rows, table_known, settled)
        # At once: only the position distinguishes entries after a mark from those before
        # it.
        rows.apply_changelog(page, read=(reader.position, noted_s))
        await asyncio.sleep(0)
    rows.set_changelog_position(reader.position, began_s)


def _forgotten(rows: RowStore, shards: Sequence[tuple[Table, ShardRange]]) -> str:
    """Return a shard whose log is folded here, beside rows that came to the slot, or "".

    The catalog has forgotten it, and none of its marks was read in the changelog yet.
    Removals there may be older than these rows, and nothing shows that any more.
    """
    known = {shard.shard_id for _, shard in shards}
    parents = {name for _, shard in shards if shard.came for name in shard.parents}
    gone = (name for name in sorted(parents - known) if rows.get(mark_key(name)) is not None)
    return next((name for name in gone if rows.find_flushed(name) < 0), "")


class SettledStamps:
    """Finds for a row's key the stamp up to which a removal does not matter here.

    Rows that left a slot are removed from its changelog, and may return with a copied
    shard. A follower of that shard's log may have them before it reads their removal in
    the changelog. If the log is folded here, it alone decides about the time before the
    shard. All those removals come in the changelog before the shard's first mark. A
    removal after any mark of the shard was made in the shard. It may be old all the same:
    copied rows keep their stamps.
    """

    def __init__(self, rows: RowStore, shards: Iterable[tuple[Table, ShardRange]]) -> None:
        self._held: list[Range] = []
        self._folded: dict[bytes, _Folded] = {}
        for table, shard in shards:
            ranges = row_ranges(table, shard)
            if not shard.sealed_us:
                self._held += ranges
            mark = rows.get(mark_key(shard.shard_id))
            if shard.copied and mark is not None and rows.find_flushed(shard.shard_id) < 0:
                noted = rows.get(skip_key(shard.shard_id)) is not None
                self._folded[mark_key(shard.shard_id)] = _Folded(shard, ranges, mark, noted)

    def passes_over(self, chunk_key: bytes, stamp: int, *, lives: bool) -> list[str] | None:
        """Return a list if a removal can be ignored, None if it must be applied.

        The list has the shards of which only a part of the copy may be here while the row
        ``lives``: the rest may have removed it.
        """
        if not self._folded or not any(low <= chunk_key < high for low, high in self._held):
            return None
        found = [f for f in self._folded.values() if f.is_older(chunk_key, stamp)]
        for folded in found:
            folded.noted = folded.noted or (lives and not folded.whole)
        return [f.shard.shard_id for f in found if f.noted] if found else None

    def meet(self, mark: bytes, value: bytes) -> str | None:
        """Record a mark of the changelog; return its shard if the mark was not known yet.

        Raises ``StartPassed`` if the mark is further than a part of a copy here, beside
        which removals were skipped: the rest may have had them.
        """
        folded = self._folded.pop(mark, None)
        if folded is None:
            return None
        shard_id = folded.shard.shard_id
        if folded.noted and mark_position(value)[0] > folded.applied:
            raise StartPassed(f"a part of the copy of {shard_id} was folded, and is behind")
        return shard_id


class _Folded:
    """A copied shard whose log is folded here, and of which no mark was read in the
    changelog yet.
    """

    def __init__(self, shard: ShardRange, ranges: list[Range], mark: bytes, noted: bool) -> None:
        self.shard = shard
        self.applied, stamp = mark_position(mark)
        self.whole = stamp > shard.floor_us  # Copied rows have no later stamp.
        self.noted = noted and not self.whole  # Else the rest has come since.
        self._ranges = ranges

    def is_older(self, chunk_key: bytes, stamp: int) -> bool:
        """True if a removal's stamp is from before the shard."""
        within = any(low <= chunk_key < high for low, high in self._ranges)
        return within and stamp <= self.shard.floor_us


def _page(
    entries: Sequence[ChangelogEntry],
    rows: RowStore,
    table_known: Callable[[int], bool],
    settled: SettledStamps,
) -> list[Fold]:
    """Return the entries to fold for a page of changelog entries."""
    folds: list[Fold] = []
    known = b""
    for entry in entries:
        offset, key, value, _ = entry
        # Written out: most are chunks, one after another of the same table.
        if value is not None and key[:5] == known:
            folds.append((offset, key, value))
            continue
        folds += _fold_entry(entry, rows, table_known, settled)
        if key[:1] == b"r" and table_known(int.from_bytes(key[1:5], "big")):
            known = key[:5]
    return folds


def _fold_entry(
    entry: ChangelogEntry,
    rows: RowStore,
    table_known: Callable[[int], bool],
    settled: SettledStamps,
) -> Sequence[Fold]:
    """Return the entries to fold for a changelog entry.

    Leftovers of dropped tables are only noted, for the next flush to remove. Tombstones
    of rows that were deleted and then written again are skipped: the local rows may have
    the later write, and the log is not read again.
    """
    if entry.key[:1] == b"r" and not table_known(int.from_bytes(entry.key[1:5], "big")):
        return [(entry.offset, removal_key(entry.key), None if entry.value is None else b"")]
    if entry.key[:1] == b"r" and entry.value is None:
        stored = rows.get(entry.key)
        stamp = tombstone_stamp(entry.headers)
        if stored is not None and header(stored)[4] > stamp:
            return []
        lives = stored is not None and not header(stored)[1] & DELETED
        if (partly := settled.passes_over(entry.key, stamp, lives=lives)) is not None:
            notes = [(entry.offset, skip_key(name), b"") for name in partly]
            # Removes only rows that are deleted here, too.
            return [*notes, (entry.offset, entry.key, None)]
    if entry.value is not None and (shard_id := settled.meet(entry.key, entry.value)):
        return [(entry.offset, skip_key(shard_id), None), *_fold_plainly(entry)]
    return _fold_plainly(entry)


def _fold_plainly(entry: ChangelogEntry) -> list[Fold]:
    """Return an entry as it is; a row's tombstone also as a stamped delete."""
    plain = (entry.offset, entry.key, entry.value)
    stamp = 0 if entry.value is not None else tombstone_stamp(entry.headers)
    return [(entry.offset, entry.key, encode_deletion(stamp)), plain] if stamp else [plain]
