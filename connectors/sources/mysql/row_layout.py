"""Reads a row image of the binlog in runs of columns with values of a fixed size.

Most columns of most tables are numbers and times. Adjacent ones are unpacked at once.
Between such runs are columns of variable size, which are read one by one. The columns of
an image depend on its NULLs, so there is a layout for each set of NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from struct import Struct
from typing import Any, NamedTuple

from rowtide.connectors.sources.mysql import table_map as binlog
from rowtide.connectors.sources.mysql.row_image import Reader
from rowtide.connectors.sources.mysql.schema import above_64_bits
from rowtide.connectors.sources.mysql.table_map import BinlogColumn
from rowtide.core.values.variant import Scalar

__all__ = ["Row", "RowImages"]

LAYOUTS_MAX = 256
VALUES_KNOWN = 256
"""Cached values of a column: most values of an update's two images are equal."""

Row = list[Scalar | None]

_VARYING = {
    *(binlog.VARCHAR, binlog.STRING, binlog.VAR_STRING, binlog.BLOB, binlog.GEOMETRY),
    *(binlog.JSON, binlog.VECTOR),
}
_CODES = {
    (binlog.TINY, False): "b",
    (binlog.TINY, True): "B",
    (binlog.SHORT, False): "h",
    (binlog.SHORT, True): "H",
    (binlog.LONG, False): "i",
    (binlog.LONG, True): "I",
    (binlog.LONGLONG, False): "q",
    (binlog.FLOAT, False): "f",
    (binlog.FLOAT, True): "f",
    (binlog.DOUBLE, False): "d",
    (binlog.DOUBLE, True): "d",
}
"""Codes of ``struct``, by type and whether it is unsigned."""

_FIXED_BYTES_MAX = 64


class _Fixed(NamedTuple):
    """How a column of a fixed size is unpacked and then converted, if needed."""

    code: str
    change: Callable[[Any], Scalar] | None


class _Layout(NamedTuple):
    """The structure of an image with some set of NULLs.

    A run has the function that unpacks fixed columns, their size in bytes, and readers of
    later columns.
    """

    runs: Sequence[tuple[Callable[[bytes, int], tuple[Any, ...]], int, Sequence[Reader]]]
    changes: Sequence[tuple[int, Callable[[Any], Scalar]]]
    nulls: Sequence[int]


class RowImages:
    """Reads the images of one table's rows, whose ``columns`` are read by ``readers``."""

    def __init__(self, columns: Sequence[BinlogColumn], readers: Sequence[Reader]) -> None:
        self._readers = readers
        self._null_bytes = (len(columns) + 7) // 8
        self._fixed = [_plan_column(*each) for each in zip(columns, readers, strict=True)]
        self._layouts: dict[bytes, _Layout] = {}

    def read(self, body: bytes, at: int) -> tuple[Row, int]:
        """Return the values of the image at ``at``, and its end."""
        begin = at + self._null_bytes
        nulls = body[at:begin]
        runs, changes, absent = self._layouts.get(nulls) or self._layout(nulls)
        row: Row = []
        at = begin
        for unpack, size, readers in runs:
            row += unpack(body, at)
            at += size
            for reader in readers:
                value, at = reader(body, at)
                row.append(value)
        for index, change in changes:
            row[index] = change(row[index])
        for index in absent:
            row.insert(index, None)
        return row, at

    def _layout(self, nulls: bytes) -> _Layout:
        bits = int.from_bytes(nulls, "little")
        codes = "<"
        readers: list[Reader] = []
        runs = []
        changes = []
        there = [index for index in range(len(self._fixed)) if not bits >> index & 1]
        for place, index in enumerate(there):
            fixed = self._fixed[index]
            if fixed is None:
                readers.append(self._readers[index])
                continue
            if readers:
                runs.append(_run(codes, readers))
                codes, readers = "<", []
            codes += fixed.code
            if fixed.change is not None:
                changes.append((place, fixed.change))
        runs.append(_run(codes, readers))
        if len(self._layouts) >= LAYOUTS_MAX:
            self._layouts.clear()
        absent = [index for index in range(len(self._fixed)) if bits >> index & 1]
        layout = self._layouts[nulls] = _Layout(runs, changes, absent)
        return layout


def _run(
    codes: str, readers: Sequence[Reader]
) -> tuple[Callable[[bytes, int], tuple[Any, ...]], int, Sequence[Reader]]:
    struct = Struct(codes)
    return struct.unpack_from, struct.size, readers


def _plan_column(column: BinlogColumn, reader: Reader) -> _Fixed | None:
    """Return how a column is unpacked, None if its size varies."""
    if column.type in _VARYING:
        return None
    code = _CODES.get((column.type, column.unsigned))
    if code is not None:
        return _Fixed(code, None)
    if column.type == binlog.LONGLONG:
        return _Fixed("Q", above_64_bits)
    # The size does not depend on the bytes.
    _, size = reader(bytes(_FIXED_BYTES_MAX), 0)
    return _Fixed(f"{size}s", lru_cache(VALUES_KNOWN)(partial(_value, reader)))


def _value(reader: Reader, raw: bytes) -> Scalar:
    return reader(raw, 0)[0]
