"""Rows as Python values, to and from PlainBuffer.

A key is (column, value) pairs in the table's order. A value is str, int, float, bool or bytes, in
keys also a ``Special``. Versions are milliseconds since the Unix epoch; None lets the server
choose. A cell's checksum covers name, value, version and, last, the operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import RowChange, SequenceInfo
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT, Cell
from rowtide.core.values.crc8 import STEP, crc8
from rowtide.core.values.variant import Scalar

__all__ = [
    "Change",
    "Delete",
    "Increment",
    "Key",
    "Put",
    "Row",
    "Special",
    "change_of",
    "encode_row",
    "row_of",
]


class Special(Enum):
    """A key value that is no scalar: the ends of a range, and "assign a number"."""

    INF_MIN = variant.V_INF_MIN
    INF_MAX = variant.V_INF_MAX
    AUTO_INCREMENT = variant.V_AUTO_INCREMENT


Key = Sequence[tuple[str, Scalar | Special]]


class Put(NamedTuple):
    """A column's value at a version."""

    name: str
    value: Scalar
    version_ms: int | None = None


class Delete(NamedTuple):
    """The deletion of one version of a column, or of all if ``version_ms`` is None."""

    name: str
    version_ms: int | None = None


class Increment(NamedTuple):
    """An addition to an integer column."""

    name: str
    by: int


Change = Put | Delete | Increment


class Row(NamedTuple):
    """A row as read: columns by name, newest version first."""

    key: tuple[tuple[str, Scalar], ...]
    columns: tuple[Put, ...]


class Changed(NamedTuple):
    """A row of the stream: its changes, and its position in the shard."""

    key: tuple[tuple[str, Scalar], ...]
    changes: tuple[Put | Delete, ...]
    sequence: SequenceInfo | None


def encode_row(key: Key, changes: Iterable[Change] = (), *, deleted: bool = False) -> bytes:
    """Return the buffer of one row, with its header."""
    columns = [(name.encode(), _variant(value)) for name, value in key]
    cells = [_cell(change) for change in changes]
    return plainbuffer.HEADER + plainbuffer.encode_row(columns, cells, deleted=deleted)


def _variant(value: Scalar | Special) -> bytes:
    return value.value if isinstance(value, Special) else variant.encode(value)


def _cell(change: Change) -> Cell:
    name = change.name.encode()
    if isinstance(change, Put):
        return plainbuffer.put_cell(name, variant.encode(change.value), change.version_ms)
    if isinstance(change, Increment):
        amount = variant.encode(change.by)
        return Cell(name, INCREMENT, amount, None, STEP[crc8(amount, crc8(name)) ^ INCREMENT])
    if change.version_ms is None:
        return Cell(name, DELETE_ALL, b"", None, STEP[crc8(name) ^ DELETE_ALL])
    version = change.version_ms.to_bytes(8, "little", signed=True)
    checksum = STEP[crc8(version, crc8(name)) ^ DELETE_ONE]
    return Cell(name, DELETE_ONE, b"", change.version_ms, checksum)


def row_of(row: RowChange) -> Row:
    """Return a row of an answer, whose cells are all puts."""
    columns = (
        Put(cell.name.decode(), variant.decode(cell.variant), cell.version_ms) for cell in row.cells
    )
    return Row(_key(row), tuple(columns))


def change_of(row: RowChange) -> Changed:
    """Return a row of the stream, whose cells are puts and deletes."""
    return Changed(_key(row), tuple(_change(cell) for cell in row.cells), row.sequence)


def _key(row: RowChange) -> tuple[tuple[str, Scalar], ...]:
    return tuple((name.decode(), variant.decode(value)) for name, value in row.key)


def _change(cell: Cell) -> Put | Delete:
    if cell.op in (DELETE_ALL, DELETE_ONE):
        return Delete(cell.name.decode(), cell.version_ms)
    return Put(cell.name.decode(), variant.decode(cell.variant), cell.version_ms)
