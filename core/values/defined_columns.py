"""Defined columns: attributes with a type fixed by the table, which secondary indexes may use.

A defined column is a (name, type) pair of the table, with the protocol's DefinedColumnType. Only
BulkImport checks values against these types. PutRow, UpdateRow and BatchWriteRow accept any type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import KeyColumn, check_column_name

__all__ = [
    "TYPES",
    "DefinedColumn",
    "add_columns",
    "check_cell_types",
    "check_defined",
    "remove_columns",
]

DefinedColumn = tuple[str, int]

# Numbers of the protocol's DefinedColumnType, kept on disk in the catalog's documents.
TYPES = {
    1: variant.INTEGER,
    2: variant.DOUBLE,
    3: variant.BOOLEAN,
    4: variant.STRING,
    7: variant.BLOB,
}
"""Variant type by DefinedColumnType."""


def check_defined(
    columns: Sequence[DefinedColumn], key: Iterable[KeyColumn], limits: Limits
) -> None:
    """Check all defined columns of a table. Raises OTSParameterInvalid."""
    most = limits.defined_columns_max
    if len(columns) > most:
        raise invalid(f"The number of defined columns must be in range: [0, {most}].")
    taken = {column.name for column in key}
    for name, kind in columns:
        check_column_name(name, limits)
        if kind not in TYPES:
            raise invalid(f"Invalid type of defined column '{name}': {kind}.")
        if name in taken:
            raise invalid(f"Duplicated column name: '{name}'.")
        taken.add(name)


def add_columns(
    columns: Sequence[DefinedColumn],
    more: Sequence[DefinedColumn],
    key: Iterable[KeyColumn],
    limits: Limits,
) -> tuple[DefinedColumn, ...]:
    """Return a table's defined columns and ``more``. Raises OTSParameterInvalid."""
    if not more:
        raise invalid("No defined column is specified.")
    whole = (*columns, *more)
    check_defined(whole, key, limits)
    return whole


def remove_columns(
    columns: Sequence[DefinedColumn], names: Sequence[str], limits: Limits
) -> tuple[DefinedColumn, ...]:
    """Return a table's defined columns except those named. Raises OTSParameterInvalid."""
    if not names:
        raise invalid("No defined column is specified.")
    known = dict(columns)
    for name in names:
        check_column_name(name, limits)
        if name not in known:
            raise invalid(f"Defined column does not exist: '{name}'.")
    return tuple(column for column in columns if column[0] not in names)


def check_cell_types(columns: tuple[DefinedColumn, ...], cells: Iterable[Cell]) -> None:
    """Check values of defined columns against the columns' types. Raises OTSParameterInvalid."""
    types = _variant_types(columns)
    if not types:
        return
    for cell in cells:
        kind = types.get(cell.name)
        if kind is not None and cell.variant and cell.variant[0] != kind:
            raise _wrong_type(cell, kind)


@lru_cache(256)
def _variant_types(columns: tuple[DefinedColumn, ...]) -> dict[bytes, int]:
    return {name.encode(): TYPES[kind] for name, kind in columns}


def _wrong_type(cell: Cell, kind: int) -> Rejected:
    return invalid(
        f"Invalid column type for column {cell.name.decode()} "
        f"expect {variant.type_name(bytes((kind,)))} actual {variant.type_name(cell.variant)}"
    )
