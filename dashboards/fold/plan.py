"""What a panel does with rows: a query that is checked and compiled.

A fold needs no parser: everything here is functions of tuples, or code of one. A *row* has the
values of ``columns``, converted to their types. A *group* has the values of ``keys``, then those
of ``results``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from rowtide.core.values.variant import Scalar
from rowtide.dashboards.fold.states import AggregateState
from rowtide.dashboards.values.kinds import SqlType, Value
from rowtide.dashboards.values.row_code import Evaluate, RowCode

__all__ = [
    "ORIGIN_US",
    "AddToGroup",
    "ColumnSpec",
    "EvaluateRow",
    "FoundRow",
    "GroupKey",
    "GroupWindow",
    "OrderTerm",
    "PanelOutput",
    "PanelPlan",
    "ResultSpec",
    "RowAdding",
    "StateSpec",
]


# A Monday, like the origin of time_bucket, so that a hop begins where a bucket of its step does.
ORIGIN_US = 946_857_600_000_000


FoundRow = tuple[Any, ...]
"""What a row adds: the key of its group, then a value for each state. None adds nothing."""

EvaluateRow = Callable[[Sequence[Value]], FoundRow | None]
"""Returns what a row adds, None if WHERE leaves it out. Raises ``OutOfRange``."""

AddToGroup = Callable[[Any, FoundRow, int], None]
"""Adds a row to its group so many times, or takes it back if they are below 0."""


class RowAdding(NamedTuple):
    """The two steps in which a row is added: nothing is added of a row that overflows."""

    evaluate: EvaluateRow
    add: AddToGroup


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """A column that the query reads. ``convert`` raises ``ValueError`` for another type."""

    name: str
    word: str
    convert: Callable[[Scalar], Value]


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A key that gives a row several groups, or joins groups.

    ``hop``: the start of each window of ``size_us`` that the time is in; one begins each
    ``step_us``. ``session``: groups whose times are at most ``size_us`` apart become one, named by
    its first time.
    """

    form: Literal["hop", "session"]
    size_us: int
    step_us: int = 0

    @property
    def pane_us(self) -> int:
        """Length of the panes that a partial keeps: a hop's windows are sums of whole panes."""
        return math.gcd(self.size_us, self.step_us)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """One value by which rows are grouped.

    ``find_end`` returns the end of the time that a value stands for, if it is the start of a
    bucket or a hop. Times are microseconds.
    """

    kind: SqlType
    code: RowCode
    window: GroupWindow | None = None
    find_end: Callable[[int], int] | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class StateSpec:
    """What is kept for an aggregate. Without ``argument`` rows are counted.

    A row counts if ``condition`` is true of it, or absent.
    """

    state: str
    argument: RowCode | None
    condition: RowCode | None


@dataclass(frozen=True, slots=True)
class ResultSpec:
    """The value of an aggregate: ``finish`` of the state at ``place``."""

    kind: SqlType
    place: int
    finish: Callable[[AggregateState], Value]
    is_approximate: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class PanelOutput:
    """A column of the answer. ``is_group``: it says which group, and no aggregate is in it."""

    name: str
    kind: SqlType
    evaluate: Evaluate
    is_approximate: bool = False
    is_group: bool = False


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """A term of ORDER BY."""

    evaluate: Evaluate
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class PanelPlan:
    """A whole query. Without ``keys`` there is one group, even if it has no row."""

    source: Literal["rows", "changes"]
    adding: RowAdding
    columns: Sequence[ColumnSpec]
    keys: Sequence[GroupKey]
    states: Sequence[StateSpec]
    results: Sequence[ResultSpec]
    outputs: Sequence[PanelOutput]
    having: Evaluate | None
    order: Sequence[OrderTerm]
    limit: int | None

    def convert_row(self, row: Mapping[str, Scalar]) -> tuple[tuple[Value, ...], list[int]]:
        """Return the row's values, and the places of those of another type, which are NULL."""
        values: list[Value] = []
        mistyped: list[int] = []
        for place, column in enumerate(self.columns):
            value = row.get(column.name)
            if value is None:
                values.append(None)
                continue
            try:
                values.append(column.convert(value))
            except ValueError:
                values.append(None)
                mistyped.append(place)
        return tuple(values), mistyped
