"""What of a stored row answers a read.

A ``Selection`` is a read request's choice of columns and versions, checked once per request. Most
reads want a whole narrow row whose every version is visible: then the answer is the stored bytes
from behind the header, and nothing is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rowtide.core import capacity, plainbuffer
from rowtide.core.cell import Cell
from rowtide.core.chunk import DELETED, HEADER_BYTES, header, key_state, row_end
from rowtide.core.chunk import cells_of as chunk_cells
from rowtide.core.fold import ChunkReader
from rowtide.core.schema import TableOptions
from rowtide.core.version import Window, expiry_floor_ms, visible_cells

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


class RowFilter(Protocol):
    """A filter of a read request: tests a row, or trims its columns (pagination)."""

    def choose(self, key: bytes, cells: Sequence[Cell]) -> Sequence[Cell] | None:
        """Return the cells that answer, or None where the row fails.

        ``key`` is the row's key as wire bytes, from its tag 01 on; cells are in stored order.
        """
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns and versions a read asks for.

    ``columns`` None means all. ``key_named`` says that the list names a key column, which keeps a
    row without any named attribute. ``start_column`` and ``end_column`` bound names in bytes:
    start <= name < end, None is unbounded.
    """

    window: Window
    columns: frozenset[bytes] | None = None
    key_named: bool = False
    start_column: bytes | None = None
    end_column: bytes | None = None
    filter: RowFilter | None = None

    @property
    def whole(self) -> bool:
        """Say whether every visible cell of the table's newest versions is asked for."""
        return (
            self.columns is None
            and self.filter is None
            and self.start_column is None
            and self.end_column is None
            and self.window.start_ms <= 0
            and self.window.end_ms >= 2**63 - 1
        )


class RowAnswer(NamedTuple):
    """One row as it answers: wire bytes without the header, and what capacity units count.

    ``size`` is the bytes of the cells' names and values plus those of the key's wire form, which
    exceed its names and values by the table's ``key_overhead``.
    """

    wire: bytes
    size: int


class StoredRow(NamedTuple):
    """A row's chunks in order, first chunk first."""

    row_key: bytes
    first: bytes
    later: Sequence[bytes]


def read_row(
    rows: ChunkReader, row_key: bytes, wanted: Selection, options: TableOptions, now_ms: int
) -> RowAnswer | None:
    """Return the row as ``wanted``, or None where it is absent, by key, filter or choice."""
    first = rows.get(row_key)
    if first is None or first[1] & DELETED:
        return None
    later: Sequence[bytes] = ()
    if header(first)[2]:
        later = [v for k, v in rows.scan(row_key + b"\0", row_end(row_key))]
    return answer(StoredRow(row_key, first, later), wanted, options, now_ms)


def read_range(
    pairs: Iterator[tuple[bytes, bytes]],
    *,
    backward: bool,
) -> Iterator[StoredRow]:
    """Group chunks in key order (or in reverse) into rows; deleted rows are left out."""
    if backward:
        yield from _rows_backward(pairs)
        return
    row_key, first = b"", b""
    later: list[bytes] = []
    for key, value in pairs:
        if header(value)[3]:
            if first:
                yield StoredRow(row_key, first, later)
            row_key, first, later = key, (b"" if value[1] & DELETED else value), []
        elif first:
            later.append(value)
    if first:
        yield StoredRow(row_key, first, later)


def _rows_backward(pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[StoredRow]:
    later: list[bytes] = []
    for key, value in pairs:
        if not header(value)[3]:
            later.append(value)
            continue
        if not value[1] & DELETED:
            yield StoredRow(key, value, later[::-1])
        later = []


def answer(
    row: StoredRow, wanted: Selection, options: TableOptions, now_ms: int
) -> RowAnswer | None:
    """Return what of a stored row answers ``wanted``."""
    first = row.first
    _, _, end_bytes, key_size, _, version_min, versions_max, data_bytes, _ = header(first)
    if (
        not row.later
        and not end_bytes
        and version_min >= expiry_floor_ms(options, now_ms)
        and versions_max <= options.max_versions
        and versions_max <= wanted.window.max_versions
        and wanted.whole
    ):
        return RowAnswer(first[HEADER_BYTES:], data_bytes + key_size)
    cells = chunk_cells(first)
    for value in row.later:
        cells += chunk_cells(value)
    start = HEADER_BYTES + end_bytes
    return _choose(first[start : start + key_size], cells, wanted, options, now_ms)


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
    """Return a wire row of a key alone."""
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
