"""How people see an attribute: one column, whatever kinds of values it has.

An attribute of one kind is shown as it is. Integers and doubles together are shown as
doubles if every integer is exact as a double. Otherwise, and in every other mixture,
values are texts. So no view shows a number other than the one that was written. The
columns behind a view keep every value as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Literal, NamedTuple

from rowtide.connectors.sinks.columnar.layout import Cells, Layout, TargetColumn

__all__ = ["EXACT_MAX", "Form", "Shown", "choose_presentations", "find_mixed_numbers", "inexact"]

EXACT_MAX = 2**53
"""Integers up to here, of either sign, are exact as doubles."""

Form = Literal["plain", "double", "text"]
_NUMBERS = {"integer", "double"}


class Shown(NamedTuple):
    """An attribute in a view: the first value among its ``columns`` that is not NULL."""

    name: str
    form: Form
    columns: Sequence[TargetColumn]


def choose_presentations(layout: Layout, large: Set[str]) -> list[Shown]:
    """Return how attributes are shown. ``large`` names those with inexact integers."""
    return [
        Shown(columns[0].name, _form(columns, columns[0].name in large), columns)
        for columns in _by_name(layout)
    ]


def find_mixed_numbers(layout: Layout) -> list[TargetColumn]:
    """Return the integer column of each attribute that has integers and doubles only."""
    return [
        column
        for columns in _by_name(layout)
        if {column.kind for column in columns} == _NUMBERS
        for column in columns
        if column.kind == "integer"
    ]


def inexact(cells: Cells, names: Iterable[str]) -> set[str]:
    """Return the attributes that have an integer among the cells that no double equals."""
    found = set()
    for name in names:
        for value in cells.get((name, int), ()):
            if value is not None and not -EXACT_MAX <= value <= EXACT_MAX:  # type: ignore[operator]
                found.add(name)
    return found


def _by_name(layout: Layout) -> Iterable[list[TargetColumn]]:
    found: dict[str, list[TargetColumn]] = {}
    for column in layout:
        found.setdefault(column.name, []).append(column)
    return found.values()


def _form(columns: Sequence[TargetColumn], large: bool) -> Form:
    if len(columns) == 1:
        return "plain"
    if {column.kind for column in columns} == _NUMBERS and not large:
        return "double"
    return "text"
