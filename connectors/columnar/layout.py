"""Which column of a table elsewhere holds which attribute.

Attributes come as they come: any name, and a value of another kind in every row. A column elsewhere
has one name and one type for good. So an attribute has a column for each kind of value that it was
ever seen with. No value is ever converted, no column is ever rewritten, and what is read back is
exactly what was written; how people see an attribute of several kinds is another matter
(``presentation.py``).

A target says what its columns may be called (``Naming``). ``first_come`` is for those that can note
a new column in the same step: the first kind takes the attribute's name, a later one is called
NAME__KIND. Most engines compare names without case: of ``Total`` and ``total`` the second is called
by its kind too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from rowtide.connectors.rows import Refused, SinkRow, TableShape
from rowtide.core.variant import Scalar

__all__ = [
    "KINDS",
    "TYPES",
    "Cells",
    "Column",
    "Kind",
    "Layout",
    "Naming",
    "Seen",
    "cells_of",
    "first_come",
    "within_limit",
]

Kind = Literal["integer", "double", "boolean", "text", "binary"]
KINDS: Mapping[type, Kind] = {
    int: "integer",
    float: "double",
    bool: "boolean",
    str: "text",
    bytes: "binary",
}

Seen = tuple[str, type]
"""An attribute and the type of a value that it was seen with."""
Cells = dict[Seen, list[Scalar | None]]
"""Values by attribute and type, one for each row; None where a row has none of that type."""


Naming = Callable[[str, str], Iterator[str]]
"""Gives what a column may be called, best first, for a name and a kind ("key" for the key's)."""


class Column(NamedTuple):
    """The column ``place`` at the target, for values of one kind of the attribute ``name``."""

    name: str
    kind: Kind
    place: str


class Layout:
    """The columns of one table at its target: ``keys`` in the key's order, then attributes.

    ``own`` are the columns that are ours; ``fold`` makes names equal that are one name at the
    target. The same table gives the same names for its keys every time.
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
        self._columns: dict[Seen, Column] = {}
        self.keys = tuple([self._take(column.name, "key") for column in table.key])

    def __iter__(self) -> Iterator[Column]:
        return iter(self._columns.values())

    def __len__(self) -> int:
        return len(self._columns)

    def find(self, seen: Seen) -> Column | None:
        """Return the column for values of a type of an attribute, None where there is none yet."""
        return self._columns.get(seen)

    def hold(self, column: Column) -> None:
        """Take note of a column that the target has."""
        self._taken.add(self._fold(column.place))
        self._columns[column.name, TYPES[column.kind]] = column

    def add(self, seen: Seen) -> Column:
        """Name a column for values of a type of an attribute, and hold it."""
        name, kind = seen[0], KINDS[seen[1]]
        column = Column(name, kind, self._take(name, kind))
        self._columns[seen] = column
        return column

    def _take(self, name: str, kind: str) -> str:
        for place in self._naming(name, kind):
            if self._fold(place) not in self._taken:
                self._taken.add(self._fold(place))
                return place
        raise AssertionError(f"no name is left for {name!r}")


TYPES: Mapping[Kind, type] = {kind: python for python, kind in KINDS.items()}


def cells_of(rows: Sequence[SinkRow]) -> Cells:
    """Return the values of rows by attribute and type."""
    cells: Cells = {}
    for place, row in enumerate(rows):
        if row.columns:
            for name, value in row.columns.items():
                values = cells.get((name, value.__class__))
                if values is None:
                    values = cells[name, value.__class__] = [None] * len(rows)
                values[place] = value
    return cells


def within_limit(
    rows: Sequence[SinkRow], cells: Cells, layout: Layout, columns_max: int
) -> tuple[Sequence[SinkRow], Cells, list[Refused]]:
    """Return the rows, and their cells, that need no more than so many columns; refuse others."""
    missing = [seen for seen in cells if layout.find(seen) is None]
    surplus = missing[max(0, columns_max - len(layout)) :]
    if not surplus:
        return rows, cells, []
    too_many = {place for seen in surplus for place in _places(cells[seen])}
    reason = (
        f"The table would need more than {columns_max} columns at the target (columns_max): "
        f"it has {len(layout)}, and this row brings others, such as {surplus[0][0]!r}."
    )
    kept = [row for place, row in enumerate(rows) if place not in too_many]
    refused = [Refused(rows[place], reason) for place in sorted(too_many)]
    return kept, cells_of(kept), refused


def _places(values: Sequence[Scalar | None]) -> Iterator[int]:
    return (place for place, value in enumerate(values) if value is not None)


def first_come(fit: Callable[[str], str]) -> Naming:
    """Return the naming after the attribute; ``fit`` makes of its name one the target takes."""

    def candidates(name: str, kind: str) -> Iterator[str]:
        plain = fit(name)
        yield plain
        yield f"{plain}__{kind}"
        number = 2
        while True:
            yield f"{plain}__{kind}_{number}"
            number += 1

    return candidates
