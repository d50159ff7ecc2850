"""A plain write, from its bytes to the chunk and the log's record, by kernels.

A put or an update is plain if every cell is a put, and all names differ from each other and from
those of the key's columns. Such a row is checked once, when it arrives (``decode_plain``), and its
cells stay encoded. Evaluation turns them into the stored chunk and the body of the log's record
(``fold_plain``), if that depends on nothing but the row itself.

For any other row these functions return None, and it takes the general path: ``WireCells`` are
cells like any others. Without kernels no write is plain.
"""

from __future__ import annotations

from typing import NamedTuple

from rowtide.core import native
from rowtide.core.protocol.plainbuffer import KeyColumns, RowChange, parse_cells
from rowtide.core.protocol.row_form import KnownCells
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import CHUNK_BYTES, DELETED, header
from rowtide.core.rows.fold import ChunkReader, Writes
from rowtide.core.rows.mutation import EXPECT_PRESENT, IGNORE, PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.cell import Cell
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table

__all__ = ["Stored", "WireCells", "decode_plain", "fold_plain"]

_KINDS = (PUT, UPDATE)

_new = tuple.__new__


class WireCells(KnownCells):
    """Cells of a plain write as they were sent, in the order of their names.

    Their names fit a table and differ, doubles are finite, checksums are right. ``size`` is their
    number, ``data_bytes`` their size in capacity units. Never changes.
    """

    __slots__ = ("_data_bytes", "size", "wire")

    names = ()

    def __init__(self, wire: bytes, size: int, data_bytes: int) -> None:
        self.wire, self.size, self._data_bytes = wire, size, data_bytes
        self._cells = None

    @property
    def data_bytes(self) -> int:
        return self._data_bytes

    def _make_cells(self) -> list[Cell]:
        return parse_cells(self.wire)

    def __len__(self) -> int:
        return self.size


class Stored(NamedTuple):
    """The result of a plain write: the log's key and body, the writes, and the client's outcome."""

    log_key: bytes
    body: bytes
    writes: Writes
    outcome: Outcome


def decode_plain(buffer: bytes, limits: Limits) -> RowChange | None:
    """Return the row of ``buffer`` if it is a plain write. Its cells need no other check."""
    found = native.kernels.read_plain(buffer, CHUNK_BYTES, limits.attribute_bytes_max)
    if found is None:
        return None
    columns, piece, state, wire, size, data_bytes = found
    key = KeyColumns(columns)
    key.piece, key.state = piece, state
    return _new(RowChange, (key, WireCells(wire, size, data_bytes), False, None))


def fold_plain(
    change: ChangeRequest,
    table: Table,
    held: Range,
    state: ShardState,
    rows: ChunkReader,
    stamp: int,
) -> Stored | None:
    """Return the result of ``change`` over ``rows``, or None if the shard has to evaluate it.

    ``held`` is the shard's range of keys. The shard has no index. The shard also decides
    rejections.
    """
    cells, key = change.cells, change.key
    if type(cells) is not WireCells or type(key) is not KeyColumns or not _is_alone(change, table):
        return None
    if state.stream is not None and state.stream.columns:
        return None
    piece = key.piece
    keys = native.kernels.row_keys(table.table_id, piece)
    if keys is None or keys[1] < held[0] or (held[1] and keys[1] >= held[1]):
        return None
    first = rows.get(keys[0])
    if first is not None:
        _, flags, end_bytes, _, _, _, _, _, _ = header(first)
        if end_bytes:
            return None
        if flags & DELETED:
            first = None
    expected = change.expectation
    if expected != IGNORE and (expected == EXPECT_PRESENT) != (first is not None):
        return None
    made = native.kernels.stored_write(
        change.kind == PUT,
        piece,
        key.state,
        cells.wire,
        cells.size,
        stamp // 1000,
        stamp,
        None if change.kind == PUT else first,
        state.options.max_versions,
        CHUNK_BYTES,
    )
    if made is None:
        return None
    size = len(piece) - table.key_overhead + cells.data_bytes
    outcome = _new(Outcome, (b"", int(expected != IGNORE), capacity.units(size)))
    return _new(Stored, (keys[1], made[1], [(keys[0], made[0])], outcome))


def _is_alone(change: ChangeRequest, table: Table) -> bool:
    """True if a change depends only on its row and returns nothing of it."""
    return (
        change.kind in _KINDS
        and change.condition is None
        and not change.return_type
        and change.time_ms is None
        and table.auto_increment_index is None
    )
