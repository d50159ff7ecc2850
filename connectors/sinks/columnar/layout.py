"""The columns of a table at a target, and the attribute of each.

In rowtide an attribute may have any name, and a value of another kind in every row. A
column at a target has one name and one type for good. So an attribute has a column for
each kind of value that it ever had. No column is rewritten, and values are read back
exactly as written. ``presentation.py`` decides how people see an attribute of several
kinds. Values are converted only if the settings declare a type, and then without loss
(``declared_types.py``). Such an attribute has a column of that type beside those of other
kinds.

A target defines possible column names (``Naming``). ``first_come`` is for targets that
can store a new column's meaning in the same step. The first kind takes the attribute's
name, and a later one is NAME__KIND. Most engines ignore letter case: of ``Total`` and
``total`` the second has its kind in its name too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rowtide.connectors.declared_types import (
    DeclaredTypes,
    LogicalType,
    LogicalValue,
    type_of_kind,
    unfit_reason,
)
from rowtide.connectors.rows import Refused, SinkRow, TableShape
from rowtide.core.values.variant import Scalar

__all__ = [
    "KINDS",
    "NO_TYPES",
    "Cells",
    "Kind",
    "Layout",
    "Naming",
    "Seen",
    "TargetColumn",
    "Value",
    "cells_of",
    "first_come",
    "is_kind",
    "kind_of",
    "writable_rows",
]

Kind = str
"""One of ``KINDS``, or the kind of a declared type, such as "decimal_10_2"."""
KINDS: Mapping[type, Kind] = {
    int: "integer",
    float: "double",
    bool: "boolean",
    str: "text",
    bytes: "binary",
}

Seen = tuple[str, type | LogicalType]
"""An attribute and the type of a value of it, or its declared type."""
Value = Scalar | LogicalValue | None
Cells = dict[Seen, list[Value]]
"""Values by attribute and type, one per row. None if a row has none of that type."""

NO_TYPES: DeclaredTypes = MappingProxyType({})

Naming = Callable[[str, str], Iterator[str]]
"""Yields possible column names, best first, for a name and a kind ("key" for key columns)."""


class TargetColumn(NamedTuple):
    """The column ``place`` at the target, for values of one kind of the attribute ``name``."""

    name: str
    kind: Kind
    place: str


class Layout:
    """The columns of one table at its target: ``keys`` in key order, then attributes.

    ``own`` are rowtide's own columns. ``fold`` maps names to one value if they are the
    same name at the target. The same table always gets the same key names.
    """

    def __init__(
        self,
        table: TableShape,
        own: Iterable[str],
        naming: Naming,
        *,
        fold: Callable[[str], str] = str.casefold,
    ) -> None:
        self._naming = naming
        self._fold = fold
        self._taken = {fold(place) for place in own}
        self._columns: dict[Seen, TargetColumn] = {}
        self.keys = tuple([self._take(column.name, "key") for column in table.key])

    def __iter__(self) -> Iterator[TargetColumn]:
        return iter(self._columns.values())

    def __len__(self) -> int:
        return len(self._columns)

    def find(self, seen: Seen) -> TargetColumn | None:
        """Return the column for values of a type of an attribute, None if it does not exist yet."""
        return self._columns.get(seen)

    def hold(self, column: TargetColumn) -> None:
        """Register a column that the target has."""
        self._taken.add(self._fold(column.place))
        self._columns[column.name, _type_of(column.kind)] = column

    def add(self, seen: Seen) -> TargetColumn:
        """Name a column for values of a type of an attribute, and register it."""
        name, kind = seen[0], kind_of(seen)
        column = TargetColumn(name, kind, self._take(name, kind))
        self._columns[seen] = column
        return column

    def _take(self, name: str, kind: str) -> str:
        for place in self._naming(name, kind):
            if self._fold(place) not in self._taken:
                self._taken.add(self._fold(place))
                return place
        raise AssertionError(f"no name is left for {name!r}")


_TYPES: Mapping[Kind, type] = {kind: python for python, kind in KINDS.items()}


def kind_of(seen: Seen) -> Kind:
    """Return the kind of the column for such values."""
    kind = seen[1]
    return kind.kind if isinstance(kind, LogicalType) else KINDS[kind]


def is_kind(kind: str) -> bool:
    """True if a column can be of this kind."""
    return kind in _TYPES or type_of_kind(kind) is not None


def cells_of(rows: Sequence[SinkRow], types: DeclaredTypes = NO_TYPES) -> Cells:
    """Return the values of rows by attribute and type. Values of declared types must fit."""
    cells: Cells = {}
    for place, row in enumerate(rows):
        if row.columns:
            for name, value in row.columns.items():
                declared = types.get(name)
                seen = (name, declared or value.__class__)
                values = cells.get(seen)
                if values is None:
                    values = cells[seen] = [None] * len(rows)
                values[place] = value if declared is None else declared.convert(value)
    return cells


def writable_rows(
    rows: Sequence[SinkRow], layout: Layout, columns_max: int, types: DeclaredTypes = NO_TYPES
) -> tuple[Sequence[SinkRow], Cells, list[Refused]]:
    """Return the rows that the target can take, with their cells. Refuse the others.

    Refused are rows with values that do not fit their declared type, and rows that would
    need more columns than ``columns_max``.
    """
    unfit = [(row, unfit_reason(row.columns or {}, types)) for row in rows] if types else []
    refused = [Refused(row, reason) for row, reason in unfit if reason]
    if refused:
        rows = [row for row, reason in unfit if not reason]
    cells = cells_of(rows, types)
    missing = [seen for seen in cells if layout.find(seen) is None]
    surplus = missing[max(0, columns_max - len(layout)) :]
    if not surplus:
        return rows, cells, refused
    too_many = {place for seen in surplus for place in _places(cells[seen])}
    reason = (
        f"The table would need more than {columns_max} columns at the target (columns_max): "
        f"it has {len(layout)}, and this row needs others, such as {surplus[0][0]!r}."
    )
    kept = [row for place, row in enumerate(rows) if place not in too_many]
    refused += [Refused(rows[place], reason) for place in sorted(too_many)]
    return kept, cells_of(kept, types), refused


def _type_of(kind: Kind) -> type | LogicalType:
    found = _TYPES.get(kind) or type_of_kind(kind)
    assert found is not None, kind
    return found


def _places(values: Sequence[Value]) -> Iterator[int]:
    return (place for place, value in enumerate(values) if value is not None)


def first_come(fit: Callable[[str], str]) -> Naming:
    """Return a naming by attribute. ``fit`` makes a name acceptable to the target."""

    def candidates(name: str, kind: str) -> Iterator[str]:
        plain = fit(name)
        yield plain
        yield f"{plain}__{kind}"
        number = 2
        while True:
            yield f"{plain}__{kind}_{number}"
            number += 1

    return candidates
