"""How a mutation changes a row: rows are this fold over the log.

The owner of a shard folds when it evaluates, and a rebuild folds the same records again. Both call
the functions here, so both store the same bytes. Nothing here reads a clock: everything that
depends on time (versions, expiry) was decided before the mutation was logged.

A column that a mutation touches keeps its newest ``max_versions`` versions, by the options in force
at that record. Surplus versions of other columns are hidden on read and left to the reclaimer. Only
chunks that a mutation touches are read and written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple, Protocol

from rowtide.core.protocol.row_form import PackedCells, ask_form
from rowtide.core.rows import capacity, row_patch
from rowtide.core.rows import chunk as chunks
from rowtide.core.rows.chunk import CHUNK_BYTES, DELETED, HEADER_BYTES, Chunk
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, Cell

__all__ = [
    "ChunkReader",
    "RowAddress",
    "Writes",
    "count_written_bytes",
    "delete_row",
    "is_row_present",
    "put_row",
    "read_cells",
    "update_row",
    "version_after",
]

Writes = list[tuple[bytes, bytes | None]]
"""Chunk keys with their new values; None removes a chunk."""

_name = itemgetter(0)
_MIN_VERSION = 0
PIECES = 4
"""A row larger than CHUNK_BYTES is cut into pieces of at most that size divided by this."""

CELL_OVERHEAD = 22
"""Bytes of a stored cell besides its name and its variant."""


class ChunkReader(Protocol):
    """The present rows, as the fold reads them."""

    def get(self, key: bytes) -> bytes | None:
        """Return a chunk's bytes, or None."""
        ...

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield chunks with start <= key < end, in order."""
        ...

    def floor(self, key: bytes, low: bytes) -> tuple[bytes, bytes] | None:
        """Return the last chunk with low <= its key <= key, or None."""
        ...


class RowAddress(NamedTuple):
    """Where a row is stored, and its key as wire bytes with the row checksum after it."""

    row_key: bytes
    key_piece: bytes
    key_state: int


def put_row(
    rows: ChunkReader, at: RowAddress, cells: Sequence[Cell], stamp: int, max_versions: int
) -> Writes:
    """Replace the whole row by ``cells``."""
    kept = _put_order(cells, max_versions)
    return _replace_all(rows, at) + _cut(at, b"", Chunk(stamp, kept))


def delete_row(rows: ChunkReader, at: RowAddress, stamp: int) -> Writes:
    """Replace the row by a stamped delete."""
    gone = Chunk(stamp, [], b"", True, at.key_piece, at.key_state)
    return [*_replace_all(rows, at), (at.row_key, chunks.encode(gone))]


def update_row(
    rows: ChunkReader, at: RowAddress, changes: Sequence[Cell], stamp: int, max_versions: int
) -> Writes:
    """Merge ``changes`` (puts and deletes of versions, in order) into the row.

    An absent row is created, unless all changes are deletes.
    """
    first = rows.get(at.row_key)
    if first is None or chunks.header(first)[1] & DELETED:
        puts = _merge([], changes, max_versions)
        if not puts and all(cell.op in (DELETE_ALL, DELETE_ONE) for cell in changes):
            return []
        return _replace_all(rows, at) + _cut(at, b"", Chunk(stamp, puts))
    if chunks.header(first)[2]:
        return _update_wide(rows, at, changes, stamp, max_versions)
    if type(changes) is PackedCells and max_versions == 1:
        return _update_packed(first, at, changes, stamp)
    return _cut(at, b"", Chunk(stamp, _merge(_cells_of(first), changes, max_versions)))


def _update_packed(first: bytes, at: RowAddress, changes: PackedCells, stamp: int) -> Writes:
    """Update a narrow row whose columns keep one version; without decoding it if possible."""
    made = row_patch.patch_row(first, at.key_state, changes, stamp)
    if made is not None:
        return [(at.row_key, made)]
    return _cut(at, b"", Chunk(stamp, _merge(_cells_of(first), changes, 1)))


def count_written_bytes(cells: Sequence[Cell], writes: Writes, *, whole: bool) -> int:
    """Return the bytes of names and values written. A whole row's single chunk has that number.

    It is not used if a column came twice, because then not all that was written is kept.
    """
    known = ask_form(cells).data_bytes
    if known is not None:
        return known
    if whole and len(writes) == 1 and writes[0][1] is not None:
        counted: int = chunks.header(writes[0][1])[7]
        if len(set(map(_name, cells))) == len(cells):
            return counted
    return capacity.cells_bytes(cells)


def is_row_present(rows: ChunkReader, row_key: bytes) -> bool:
    """True if the row exists, with or without cells."""
    first = rows.get(row_key)
    return first is not None and not chunks.header(first)[1] & DELETED


def version_after(rows: ChunkReader, at: RowAddress, cells: Sequence[Cell], time_ms: int) -> int:
    """Return the version of cells that were written elsewhere at ``time_ms``.

    It is above that of each present cell of their columns, even if the other clock went back.
    """
    first = rows.get(at.row_key)
    if first is None:
        return time_ms
    packed = ask_form(cells).packed
    if packed is not None:
        newest = chunks.newest_version(first, packed.form.ordered)
        if newest is None and _is_narrow(first):
            newest = row_patch.newest_version(first, packed)
        if newest is not None:
            return max(time_ms, newest + 1)
    names = {cell.name for cell in cells}
    narrow = _is_narrow(first)
    stored = _cells_of(first) if narrow else read_cells(rows, at.row_key, names) or ()
    versions = (c.version_ms for c in stored if c.version_ms is not None and c.name in names)
    return max(time_ms, 1 + max(versions, default=-1))


@lru_cache(1)
def _cells_of(first: bytes) -> Sequence[Cell]:
    """Return a narrow row's cells. Cached: a source's change needs them twice."""
    return chunks.cells_of(first)


def _is_narrow(first: bytes) -> bool:
    """True if the row exists and is only this chunk."""
    _, flags, end_bytes, _, _, _, _, _, _ = chunks.header(first)
    return not flags & DELETED and not end_bytes


def read_cells(
    rows: ChunkReader, row_key: bytes, names: Collection[bytes] | None = None
) -> list[Cell] | None:
    """Return the cells of a row in order, visible or not; None if the row is absent.

    With ``names`` other columns may be missing: of a wide row only the chunks with a named column
    are read.
    """
    first = rows.get(row_key)
    if first is None or chunks.header(first)[1] & DELETED:
        return None
    if not chunks.header(first)[2]:
        return chunks.cells_of(first)
    if names is not None:
        runs = _runs(rows, row_key, sorted(names))
        values = [value for run, _ in runs for _, value in run]
    else:
        values = [value for _, value in rows.scan(row_key, chunks.row_end(row_key))]
    return [cell for value in values for cell in chunks.cells_of(value)]


def _replace_all(rows: ChunkReader, at: RowAddress) -> Writes:
    """Return the removals of the row's later chunks. The caller writes its first chunk again."""
    first = rows.get(at.row_key)
    if first is None or not chunks.header(first)[2]:
        return []
    later = rows.scan(at.row_key + b"\0", chunks.row_end(at.row_key))
    return [(key, None) for key, _ in later]


def _put_order(cells: Sequence[Cell], max_versions: int) -> Sequence[Cell]:
    """Sort put cells by name and newest version; of equal versions the last one wins."""
    if type(cells) is PackedCells or all(a[0] < b[0] for a, b in pairwise(cells)):
        return cells
    return _merge([], cells, max_versions)


def _merge(old: Sequence[Cell], changes: Sequence[Cell], max_versions: int) -> list[Cell]:
    """Return ``old`` with ``changes`` applied in order; trim touched columns to max_versions."""
    touched: dict[bytes, dict[int, Cell]] = {cell.name: {} for cell in changes}
    columns: dict[bytes, list[Cell]] = {}
    for cell in old:
        versions = touched.get(cell.name)
        if versions is None:
            columns.setdefault(cell.name, []).append(cell)
        else:
            versions[cell.version_ms] = cell  # type: ignore[index]
    for cell in changes:
        _apply(touched[cell.name], cell)
    for name, versions in touched.items():
        if versions:
            newest = sorted(versions, reverse=True)[:max_versions]
            columns[name] = [versions[version] for version in newest]
    return [cell for name in sorted(columns) for cell in columns[name]]


def _apply(versions: dict[int, Cell], change: Cell) -> None:
    if change.op == DELETE_ALL:
        versions.clear()
    elif change.op == DELETE_ONE:
        versions.pop(change.version_ms, None)  # type: ignore[arg-type]
    else:
        versions[change.version_ms] = change  # type: ignore[index]


def _cut(at: RowAddress, start: bytes, whole: Chunk) -> Writes:
    """Return the writes for one chunk, cut into several if it grew too large.

    All parts have the stamp of the mutation that caused the cut. A chunk of a wide row is cut at a
    smaller size, because a change of one cell decodes and encodes its whole chunk.
    """
    whole.begin = start
    if not start:
        whole.key_piece, whole.key_state = at.key_piece, at.key_state
    encoded = chunks.encode(whole)
    limit = CHUNK_BYTES // PIECES if start or whole.end else CHUNK_BYTES
    if len(encoded) <= limit or len(whole.cells) < 2:
        return [(at.row_key + start, encoded)]
    parts = _parts(whole.cells)
    writes: Writes = []
    for index, cells in enumerate(parts):
        begin = start if index == 0 else _border_between(parts[index - 1], cells)
        end = whole.end if index == len(parts) - 1 else _border_between(cells, parts[index + 1])
        part = Chunk(whole.stamp, cells, end, begin=begin)
        if not begin:
            part.key_piece, part.key_state = at.key_piece, at.key_state
        writes.append((at.row_key + begin, chunks.encode(part)))
    return writes


def _parts(cells: Sequence[Cell]) -> list[Sequence[Cell]]:
    """Cut ``cells`` into runs of three quarters of a piece, so that each can grow."""
    sizes = [len(cell.name) + len(cell.variant) + CELL_OVERHEAD for cell in cells]
    parts: list[Sequence[Cell]] = []
    begin = held = 0
    for index, size in enumerate(sizes):
        if held and held + size > CHUNK_BYTES // PIECES * 3 // 4:
            parts.append(cells[begin:index])
            begin, held = index, 0
        held += size
    parts.append(cells[begin:])
    return parts


def _border_between(before: Sequence[Cell], after: Sequence[Cell]) -> bytes:
    """Return the first border of ``after``: before any later version of its column, if possible.

    So a new version of that column goes to one chunk, and not to the end of the previous one.
    """
    first = after[0]
    if before[-1].name != first.name:
        return chunks.border(first.name)
    return chunks.border(first.name, first.version_ms)  # type: ignore[arg-type]


def _update_wide(
    rows: ChunkReader, at: RowAddress, changes: Sequence[Cell], stamp: int, max_versions: int
) -> Writes:
    """Update only the runs of chunks that have a touched column."""
    by_name: dict[bytes, list[Cell]] = {}
    for cell in changes:
        by_name.setdefault(cell.name, []).append(cell)
    writes: Writes = []
    for run, names in _runs(rows, at.row_key, sorted(by_name)):
        old = [cell for _, value in run for cell in chunks.cells_of(value)]
        merged = _merge(old, [c for name in names for c in by_name[name]], max_versions)
        start = run[0][0][len(at.row_key) :]
        last = run[-1][1]
        end = last[HEADER_BYTES : HEADER_BYTES + chunks.header(last)[2]]
        fresh = _cut(at, start, Chunk(stamp, merged, end))
        kept = {key for key, _ in fresh}
        writes += [(key, None) for key, _ in run if key not in kept]
        writes += fresh
    return writes


Run = list[tuple[bytes, bytes]]


def _runs(
    rows: ChunkReader, row_key: bytes, names: Sequence[bytes]
) -> list[tuple[Run, list[bytes]]]:
    """Group the touched columns by the consecutive chunks that have them."""
    runs: list[tuple[Run, list[bytes]]] = []
    for name in names:
        if runs and _reaches_beyond(runs[-1][0][-1][1], name):
            # A lookup of a column costs two iterators of the store; most columns share their chunk.
            runs[-1][1].append(name)
            continue
        run = _covering(rows, row_key, name)
        if runs and runs[-1][0][-1][0] >= run[0][0]:
            known = {key for key, _ in runs[-1][0]}
            runs[-1][0].extend(pair for pair in run if pair[0] not in known)
            runs[-1][1].append(name)
        else:
            runs.append((run, [name]))
    return runs


def _reaches_beyond(chunk: bytes, name: bytes) -> bool:
    """True if a chunk ends after every version of the column."""
    end = chunk[HEADER_BYTES : HEADER_BYTES + chunks.header(chunk)[2]]
    return not end or chunks.border(name, _MIN_VERSION) < end


def _covering(rows: ChunkReader, row_key: bytes, name: bytes) -> Run:
    """Return every chunk that has, or would have, a version of the column."""
    low = rows.floor(row_key + chunks.border(name), row_key)
    assert low is not None, "a wide row has a first chunk"
    if _reaches_beyond(low[1], name):
        return [low]
    high = row_key + chunks.border(name, _MIN_VERSION)
    return [low, *rows.scan(low[0] + b"\0", high + b"\0")]
