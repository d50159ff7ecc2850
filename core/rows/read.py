"""How a stored row answers a read.

A ``Selection`` is a read request's choice of columns and versions, checked once per request. Most
reads want a whole narrow row whose versions are all visible. Then the answer is the stored bytes
after the header, and nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rowtide.core.protocol import plainbuffer
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import DELETED, HEADER_BYTES, header, key_state, row_end
from rowtide.core.rows.chunk import cells_of as chunk_cells
from rowtide.core.rows.fold import ChunkReader
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.wide_row import RowPart, decode_token, encode_token, read_part
from rowtide.core.values.cell import Cell
from rowtide.core.values.schema import TableOptions
from rowtide.core.values.version import Window, expiry_floor_ms, visible_cells

__all__ = [
    "RowAnswer",
    "RowFilter",
    "Selection",
    "StoredRow",
    "answer",
    "key_row",
    "read_range",
    "read_row",
]


ANSWER_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of a wide row's cells in one answer, if the caller has no other bound."""


ROW_OVERHEAD = 8
"""Bytes of a wire row besides key and cells, including a possible header."""


class RowFilter(Protocol):
    """A filter of a read request: tests a row, or selects its columns (pagination)."""

    @property
    def columns(self) -> frozenset[bytes]:
        """The columns that a test uses, of the key or not."""
        ...

    @property
    def page(self) -> tuple[int, int] | None:
        """Columns to skip and columns to keep; None if rows are tested."""
        ...

    def choose(self, key: bytes, cells: Sequence[Cell]) -> Sequence[Cell] | None:
        """Return the cells for the answer, or None if the row fails.

        ``key`` is the row's key as wire bytes, from its tag 01 on. Cells are in stored order.
        """
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """The columns and versions that a read requests.

    ``columns`` None means all. ``key_named``: the list has a key column, so a row without any of
    the named attributes is still returned. ``start_column`` and ``end_column`` bound names in
    bytes: start <= name < end, None is unbounded.
    """

    window: Window
    columns: frozenset[bytes] | None = None
    key_named: bool = False
    start_column: bytes | None = None
    end_column: bytes | None = None
    filter: RowFilter | None = None

    @property
    def whole(self) -> bool:
        """True if the read wants every visible cell of the table's newest versions."""
        return (
            self.columns is None
            and self.filter is None
            and self.start_column is None
            and self.end_column is None
            and self.window.start_ms <= 0
            and self.window.end_ms >= 2**63 - 1
        )


class RowAnswer(NamedTuple):
    """One row as an answer: wire bytes without the header, and the size for capacity units.

    ``size`` is the bytes of the cells' names and values plus the key's wire form, which is larger
    than its names and values by the table's ``key_overhead``. If the row is too large for one
    answer, ``token`` is the position at which it continues; ``wire`` may be empty then.
    """

    wire: bytes
    size: int
    token: bytes = b""


class StoredRow(NamedTuple):
    """An existing row: its key among the chunks, and its first chunk."""

    row_key: bytes
    first: bytes


def read_row(
    rows: ChunkReader,
    row_key: bytes,
    wanted: Selection,
    options: TableOptions,
    now_ms: int,
    *,
    token: bytes = b"",
    bytes_max: int = ANSWER_BYTES_MAX,
) -> RowAnswer | None:
    """Return the row as ``wanted``; None if it is absent, filtered out, or has no wanted column."""
    first = rows.get(row_key)
    if first is None or first[1] & DELETED:
        return None
    stored = StoredRow(row_key, first)
    return answer(rows, stored, wanted, options, now_ms, token=token, bytes_max=bytes_max)


def read_range(
    rows: RangeReader, low: bytes, high: bytes, *, backward: bool
) -> Iterator[StoredRow]:
    """Yield the rows between two chunk keys (low <= key < high) in order, or in reverse.

    Deleted rows are left out. The later chunks of a wide row are skipped without reading them.
    """
    if backward:
        yield from _rows_backward(rows, low, high)
        return
    start: bytes | None = low
    while start is not None:
        following = None
        for key, value in rows.scan(start, high):
            head = header(value)
            if head[3] and not value[1] & DELETED:
                yield StoredRow(key, value)
            if head[2]:
                following = row_end(key[: len(key) - head[8]])
                break
        start = following


def _rows_backward(rows: RangeReader, low: bytes, high: bytes) -> Iterator[StoredRow]:
    above: bytes | None = high
    while above is not None:
        following = None
        for key, value in rows.scan_backward(above, low):
            if key >= above:
                continue
            begin_bytes = header(value)[8]
            row_key = key[: len(key) - begin_bytes]
            first = rows.get(row_key) if begin_bytes else value
            if first is not None and not first[1] & DELETED:
                yield StoredRow(row_key, first)
            if begin_bytes:
                following = row_key
                break
        above = following


def answer(
    rows: ChunkReader,
    row: StoredRow,
    wanted: Selection,
    options: TableOptions,
    now_ms: int,
    *,
    token: bytes = b"",
    bytes_max: int = ANSWER_BYTES_MAX,
) -> RowAnswer | None:
    """Return the answer of a stored row for ``wanted``.

    Only a row of several chunks can be answered in parts.
    """
    first = row.first
    _, _, end_bytes, key_size, _, version_min, versions_max, data_bytes, _ = header(first)
    start = HEADER_BYTES + end_bytes
    if end_bytes or token:
        key_piece = first[start : start + key_size]
        at = decode_token(token)
        left = bytes_max - key_size - ROW_OVERHEAD
        part = read_part(rows, row, wanted, options, now_ms, at=at, bytes_max=left)
        return None if part is None else _part_answer(key_piece, part)
    if (
        version_min >= expiry_floor_ms(options, now_ms)
        and versions_max <= options.max_versions
        and versions_max <= wanted.window.max_versions
        and wanted.whole
    ):
        return RowAnswer(first[HEADER_BYTES:], data_bytes + key_size)
    cells = chunk_cells(first)
    return _choose(first[start : start + key_size], cells, wanted, options, now_ms)


def _part_answer(key_piece: bytes, part: RowPart) -> RowAnswer:
    cells, following = part
    token = b"" if following is None else encode_token(following)
    wire = _wire(key_piece, cells) if cells or not token else b""
    return RowAnswer(wire, capacity.cells_bytes(cells) + len(key_piece), token)


def _choose(
    key_piece: bytes,
    cells: Sequence[Cell],
    wanted: Selection,
    options: TableOptions,
    now_ms: int,
) -> RowAnswer | None:
    columns = wanted.columns
    if columns is not None:
        cells = [cell for cell in cells if cell.name in columns]
    chosen: Sequence[Cell] | None = visible_cells(cells, options, wanted.window, now_ms)
    if columns is not None and not chosen and not wanted.key_named:
        return None
    if wanted.start_column is not None or wanted.end_column is not None:
        chosen = _between(chosen or (), wanted)
    if wanted.filter is not None:
        chosen = wanted.filter.choose(key_piece, chosen or ())
        if chosen is None:
            return None
    wire = _wire(key_piece, chosen or ())
    return RowAnswer(wire, capacity.cells_bytes(chosen or ()) + len(key_piece))


def key_row(key_piece: bytes) -> bytes:
    """Return a wire row that is only a key."""
    return _wire(key_piece, ())


def _between(cells: Sequence[Cell], wanted: Selection) -> list[Cell]:
    low = wanted.start_column or b""
    high = wanted.end_column
    return [cell for cell in cells if low <= cell.name and (high is None or cell.name < high)]


def _wire(key_piece: bytes, cells: Sequence[Cell]) -> bytes:
    state = key_state(key_piece)
    checksum = plainbuffer.row_checksum(state, bytes([cell.checksum for cell in cells]))
    tag = b"\x02" if cells else b""
    pieces = plainbuffer.cells_piece(cells)
    return b"".join((key_piece, tag, pieces, b"\x09", checksum.to_bytes(1, "little")))
