"""The cost of an operation in capacity units.

One unit is 4096 bytes, rounded up, and at least one per operation. A row's size is the sum of name
and value bytes of its key columns and of its returned or written cells (INTEGER and DOUBLE 8,
BOOLEAN 1; a delete counts its name).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowtide.core.protocol.row_form import ask_form
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell

__all__ = ["UNIT_BYTES", "cells_bytes", "key_bytes", "units"]

UNIT_BYTES = 4096


def units(size_bytes: int) -> int:
    """Return the capacity units of ``size_bytes``. An empty answer costs one."""
    return max(1, -(-size_bytes // UNIT_BYTES))


def key_bytes(key: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the bytes of a primary key: names and values."""
    return sum(len(name) + variant.payload_size(value) for name, value in key)


def cells_bytes(cells: Sequence[Cell]) -> int:
    """Return the bytes of cells: names and values. A delete has no value."""
    known = ask_form(cells).data_bytes
    if known is not None:
        return known
    return sum(
        len(cell.name) + (variant.payload_size(cell.variant) if cell.variant else 0)
        for cell in cells
    )
