"""What the reclaimer removes: versions that no reader can see, and rows that become empty.

A hidden record of the log says where and what (``record.Reclaim``). The owner and every rebuild
fold it with ``reclaim``, so they keep the same cells. What is removed depends only on the record
and the cells, not on the borders of chunks.

A *place* is an encoded primary key, followed by a border for a column of that row. A record covers
the columns that begin at a place from ``first`` to ``last``, each with all of its versions. A row
that loses its last cell here is deleted, as its data has expired. A row that was written without
cells, or lost them by deletes, stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rowtide.core.records.record import Reclaim
from rowtide.core.rows import chunk as chunks
from rowtide.core.rows import fold
from rowtide.core.rows.chunk import CHUNK_BYTES, DELETED, HEADER_BYTES, Chunk, header
from rowtide.core.rows.fold import ChunkReader, RowAddress, Writes
from rowtide.core.values.cell import Cell
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.schema import ShardRange

__all__ = ["find_reclaim_range", "first_place", "last_place", "needs_reclaim", "reclaim"]

Pair = tuple[bytes, bytes]

_JOINED_BYTES = CHUNK_BYTES // fold.PIECES * 3 // 4
"""Chunks that have lost cells are joined to the previous chunk up to this size."""


def needs_reclaim(value: bytes, cutoff_ms: int, max_versions: int) -> bool:
    """True if a stored chunk may have something to remove. Only False is certain."""
    _, flags, _, _, _, version_min, versions_max, _, _ = header(value)
    if flags & DELETED:
        return False
    return bool(
        version_min < cutoff_ms or versions_max > max_versions or _is_within_column(_end(value))
    )


def first_place(chunk_key: bytes, value: bytes) -> bytes:
    """Return the lowest place of a chunk's columns, also of one that began in an earlier chunk."""
    at = len(chunk_key) - header(value)[8]
    begin = chunk_key[at:]
    if _is_within_column(begin):
        begin = chunks.border(chunks.decode_border(begin)[0])
    return chunk_key[_PREFIX_BYTES:at] + begin


def last_place(chunk_key: bytes, value: bytes) -> bytes:
    """Return a place after those of a chunk's columns and before any other's."""
    row = chunk_key[_PREFIX_BYTES : len(chunk_key) - header(value)[8]]
    end = _end(value)
    if not end:
        return chunks.row_end(row)
    if _is_within_column(end):
        return row + chunks.border(chunks.decode_border(end)[0])
    return (row + end)[:-1]


def find_reclaim_range(
    rows: ChunkReader, table_id: int, body: Reclaim, place: ShardRange
) -> tuple[bytes, bytes]:
    """Return the chunk keys (low <= key < high) of every row that a record may have changed.

    The record's shard has the keys of ``place``. The row before them belongs to another shard,
    which flushes it.
    """
    prefix = chunks.table_prefix(table_id)
    low, high = prefix + body.first, prefix + body.last
    before = rows.floor(low, prefix)
    if before is not None:
        low = min(low, _row_key(*before))
    behind = rows.floor(high, prefix)
    if behind is not None:
        high = max(high, chunks.row_end(_row_key(*behind)))
    if place.end:
        high = min(high, prefix + place.end)
    return max(low, prefix + place.begin), high


def reclaim(rows: ChunkReader, table_id: int, body: Reclaim, stamp: int) -> Writes:
    """Return the writes of a record to the rows, as of ``stamp``."""
    prefix = chunks.table_prefix(table_id)
    low, high = prefix + body.first, prefix + body.last
    writes: Writes = []
    row: _Row | None = None
    for key, value in _scan_chunks(rows, prefix, low, high):
        row_key = _row_key(key, value)
        if row is None or row.row_key != row_key:
            writes += row.writes(rows) if row is not None else []
            row = _Row(row_key, low, high, body, stamp)
        row.take(key, value)
    if row is None:
        return writes
    while (following := row.next_chunk(rows)) is not None:
        row.take(*following)
    return writes + row.writes(rows)


_PREFIX_BYTES = len(chunks.table_prefix(0))


def _scan_chunks(rows: ChunkReader, prefix: bytes, low: bytes, high: bytes) -> Iterator[Pair]:
    """Yield the chunks with a place between ``low`` and ``high``, in order."""
    before = rows.floor(low, prefix)
    if before is not None and low.startswith(_row_key(*before)):
        yield before
    yield from rows.scan(low if before is None or before[0] != low else low + b"\0", high + b"\0")


def _row_key(key: bytes, value: bytes) -> bytes:
    return key[: len(key) - header(value)[8]]


def _end(value: bytes) -> bytes:
    return value[HEADER_BYTES : HEADER_BYTES + header(value)[2]]


def _is_within_column(edge: bytes) -> bool:
    """True if a border is between versions of one column."""
    return bool(edge) and chunks.decode_border(edge)[1] != INT64_MAX


@dataclass(slots=True)
class _Piece:
    """A chunk after the reclaim. ``cells`` is None if it is unchanged and was not decoded."""

    key: bytes
    value: bytes
    end: bytes
    cells: list[Cell] | None
    changed: bool
    opaque: bool


@dataclass(slots=True)
class _Row:
    """One row while its chunks are processed in order."""

    row_key: bytes
    low: bytes
    high: bytes
    body: Reclaim
    stamp: int
    removed: int = 0
    kept: bool = False
    _seen: set[bytes] = field(default_factory=set)
    _writes: Writes = field(default_factory=list)
    _last: _Piece | None = None
    _name: bytes | None = None
    _rank: int = 0
    _inside: bool = False

    def take(self, key: bytes, value: bytes) -> None:
        """Process the next chunk."""
        _, flags, _, _, stamp, _, versions_max, _, _ = header(value)
        self._seen.add(key)
        begin, end = key[len(self.row_key) :], _end(value)
        # A chunk from after the record includes its effect already.
        opaque = bool(flags & DELETED) or stamp > self.stamp
        if not needs_reclaim(value, self.body.version_cutoff_ms, self.body.max_versions) and not (
            _is_within_column(begin) or (begin and not versions_max)
        ):
            self.kept = self.kept or versions_max > 0
            self._push(_Piece(key, value, end, None, changed=False, opaque=opaque))
            return
        cells = chunks.cells_of(value)
        left = [cell for cell in cells if self._is_kept(cell)]
        if opaque:
            left = cells
        self.removed += len(cells) - len(left)
        self.kept = self.kept or bool(left) or opaque
        changed = len(left) != len(cells)
        self._push(_Piece(key, value, end, left, changed, opaque))

    def _is_kept(self, cell: Cell) -> bool:
        name, _, _, version, _ = cell
        assert version is not None, "a stored cell has a version"
        if name != self._name:
            self._name, self._rank = name, 0
            self._inside = self.low <= self.row_key + chunks.border(name) <= self.high
        self._rank += 1
        if not self._inside:
            return True
        return self._rank <= self.body.max_versions and version >= self.body.version_cutoff_ms

    def _push(self, piece: _Piece) -> None:
        """Add a piece. Join it to the previous one if it has lost cells or has none."""
        last = self._last
        if last is not None and self._can_join(last, piece):
            cells = chunks.cells_of(last.value) if last.cells is None else last.cells
            last.cells = [*cells, *(piece.cells or ())]
            last.end, last.changed = piece.end, True
            self._writes.append((piece.key, None))
            return
        self._settle()
        self._last = piece

    def _can_join(self, last: _Piece, piece: _Piece) -> bool:
        if piece.cells is None or last.opaque or piece.opaque:
            return False
        if not piece.cells:
            return True
        if not piece.changed:
            return False
        before = len(last.value) if last.cells is None else _bytes_of(last.cells)
        return before + _bytes_of(piece.cells) <= _JOINED_BYTES

    def _settle(self) -> None:
        last, self._last = self._last, None
        if last is None or not last.changed:
            return
        whole = chunks.decode(last.key, last.value)
        whole.stamp, whole.end = self.stamp, last.end
        whole.cells = last.cells or []
        self._writes.append((last.key, chunks.encode(whole)))

    def next_chunk(self, rows: ChunkReader) -> Pair | None:
        """Return the next chunk if it continues a column that the record covers."""
        last = self._last
        if last is None or not self._inside or not _is_within_column(last.end):
            return None
        if chunks.decode_border(last.end)[0] != self._name:
            return None
        key = self.row_key + last.end
        value = rows.get(key)
        return None if value is None else (key, value)

    def writes(self, rows: ChunkReader) -> Writes:
        """Return the writes of the row."""
        self._settle()
        if self.removed and not self.kept and not self._has_others(rows):
            first = rows.get(self.row_key)
            assert first is not None, "a row has a first chunk"
            whole: Chunk = chunks.decode(self.row_key, first)
            at = RowAddress(self.row_key, whole.key_piece, whole.key_state)
            return fold.delete_row(rows, at, self.stamp)
        return self._writes

    def _has_others(self, rows: ChunkReader) -> bool:
        """True if a chunk that was not visited has cells."""
        everything = rows.scan(self.row_key, chunks.row_end(self.row_key))
        return any(header(value)[6] for key, value in everything if key not in self._seen)


def _bytes_of(cells: list[Cell]) -> int:
    return sum(len(cell.name) + len(cell.variant) + fold.CELL_OVERHEAD for cell in cells)
