"""The rows of an index, local or global: those that it has, and those that it must have."""

from __future__ import annotations

from collections.abc import Mapping

from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.fold import read_cells
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.read import read_range
from rowtide.core.values import key, variant
from rowtide.core.values.schema import Index
from tests.simulation.row_model import Columns, newest_of

__all__ = ["IndexRows", "index_rows_in", "index_rows_of"]

IndexRows = dict[tuple[bytes, ...], dict[bytes, bytes]]
"""Values of the columns kept, by the key of the index's row."""


def index_rows_in(rows: RangeReader, index: Index) -> IndexRows:
    """Return the rows that an index has."""
    low, high = table_prefix(index.table_id), table_prefix(index.table_id + 1)
    found: IndexRows = {}
    for stored in read_range(rows, low, high, backward=False):
        cells = read_cells(rows, stored.row_key) or ()
        of = tuple(key.decode(stored.row_key[len(low) :]))
        found[of] = {cell.name: cell.variant for cell in cells}
    return found


def index_rows_of(rows: Mapping[str, Columns | None], index: Index) -> IndexRows:
    """Return the rows that an index of rows, by name, must have: each column's newest version.

    A row that lacks a column of the index's key is not in it.
    """
    kept = {column.encode() for column in index.columns}
    found: IndexRows = {}
    for name, columns in rows.items():
        newest = newest_of(columns)
        if newest is not None:
            at = {"name": variant.encode(name), "number": variant.encode(1)}
            at |= {column.decode(): value for column, value in newest.items()}
            if all(column in at for column in index.key):
                row_key = tuple(at[column] for column in index.key)
                found[row_key] = {column: newest[column] for column in kept & newest.keys()}
    return found
