"""A panel's sums over some changes of one source shard: groups, and what could not be counted.

A partial is linear. ``add`` with -1 takes a row back exactly, and partials of several shards add up
to that of all their rows. PanelBounds keep it small: beyond them it is *overfull* for good, keeps
nothing more, and its panel shows no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from rowtide.core.values.variant import Scalar
from rowtide.dashboards.fold.plan import ORIGIN_US, FoundRow, PanelPlan
from rowtide.dashboards.fold.states import STATES, AggregateState
from rowtide.dashboards.values.arithmetic import OutOfRange
from rowtide.dashboards.values.kinds import Value

__all__ = [
    "ORIGIN_US",
    "Additions",
    "Key",
    "Overfull",
    "PanelBounds",
    "PanelGroup",
    "PanelPartial",
    "WeightedRow",
    "has_ended",
]

Key = tuple[Value, ...]
Overfull = Literal["", "groups", "values"]

WeightedRow = tuple[Sequence[Value], Sequence[int], int]
"""Values of a plan's columns, the places of those of another type, and how often it is added."""

_BOUNDED = ("values", "sketch")
"""States that grow with their values."""


class PanelBounds(NamedTuple):
    """``groups_max``: groups of a panel. ``values_max``: values that one aggregate of a group
    keeps.
    """

    groups_max: int = 10_000
    values_max: int = 10_000


class PanelGroup:
    """The states of one group. ``rows`` is how many rows it has."""

    __slots__ = ("rows", "states")

    def __init__(self, states: Sequence[AggregateState]) -> None:
        self.rows = 0
        self.states = states

    @property
    def is_zero(self) -> bool:
        """True if everything that was added has been taken back."""
        return not self.rows and all(state.is_zero for state in self.states)

    def merge(self, other: PanelGroup) -> None:
        """Add another group of the same plan."""
        self.rows += other.rows
        for mine, theirs in zip(self.states, other.states, strict=True):
            mine.merge(theirs)


class Additions:
    """What some rows add to a partial, evaluated but not added yet. ``keys`` are their groups."""

    __slots__ = ("failures", "found", "keys", "mistyped")

    def __init__(self) -> None:
        self.found: list[tuple[FoundRow, int]] = []
        self.keys: set[Key] = set()
        self.mistyped: list[tuple[int, int]] = []
        self.failures = 0


class PanelPartial:
    """Groups by their keys. Those of a hop are panes, which ``answer`` adds up to windows.

    ``touched`` has the keys of groups that were changed or dropped since it was last cleared.
    ``mistyped`` counts values of another type by column, ``failures`` rows on which an expression
    overflows. While there is one, the panel has no numbers, as DuckDB then has none.
    """

    def __init__(self, plan: PanelPlan, bounds: PanelBounds = PanelBounds()) -> None:  # noqa: B008 - a tuple.
        self._plan = plan
        self._bounds = bounds
        self._evaluate, self._add = plan.adding
        self._bounded = [place for place, spec in enumerate(plan.states) if spec.state in _BOUNDED]
        self.groups: dict[Key, PanelGroup] = {}
        self.mistyped: dict[int, int] = {}
        self.failures = 0
        self.overfull: Overfull = ""
        self.touched: set[Key] = set()

    def add(self, row: Mapping[str, Scalar], sign: int = 1) -> None:
        """Add a row, or take it back if ``sign`` is -1."""
        self.add_values(*self._plan.convert_row(row), sign)

    def add_values(self, values: Sequence[Value], mistyped: Sequence[int], sign: int) -> None:
        """Add the values of the plan's columns, or take them back.

        ``mistyped`` are the places of values of another type, which are NULL.
        """
        self.apply(self.evaluate([(values, mistyped, sign)]))

    def evaluate(self, rows: Iterable[WeightedRow]) -> Additions:
        """Return what rows add. It changes nothing."""
        additions = Additions()
        if self.overfull:
            return additions
        evaluate, found, keys = self._evaluate, additions.found, additions.keys
        for values, mistyped, times in rows:
            for place in mistyped:
                additions.mistyped.append((place, times))
            try:
                row = evaluate(values)
            except OutOfRange:
                additions.failures += times
                continue
            if row is not None:
                found.append((row, times))
                keys.add(row[0])
        return additions

    def apply(self, additions: Additions) -> None:
        """Add what ``evaluate`` returned, in whatever order."""
        if self.overfull:
            return
        for place, times in additions.mistyped:
            self._count_mistyped(place, times)
        self.failures += additions.failures
        groups, add = self.groups, self._add
        for row, times in additions.found:
            key = row[0]
            group = groups.get(key)
            if group is None:
                group = groups[key] = self._new_group()
            add(group, row, times)
            if not group.rows:
                self._drop_if_zero(key, group)
        self.touched |= additions.keys
        self._check_groups(additions.keys)

    def _count_mistyped(self, place: int, sign: int) -> None:
        count = self.mistyped.pop(place, 0) + sign
        if count:
            self.mistyped[place] = count

    def _new_group(self) -> PanelGroup:
        return PanelGroup([STATES[spec.state]() for spec in self._plan.states])

    def _drop_if_zero(self, key: Key, group: PanelGroup) -> None:
        """Drop a group of which everything has been taken back."""
        if not group.rows and group.is_zero:
            del self.groups[key]

    def _check_groups(self, keys: Iterable[Key]) -> None:
        """Become overfull if there are too many groups, or one of these has too many values."""
        if len(self.groups) > self._bounds.groups_max:
            self.overfill("groups")
            return
        for key in keys if self._bounded else ():
            group = self.groups.get(key)
            if group is not None and self._has_too_many_values(group):
                self.overfill("values")
                return

    def _has_too_many_values(self, group: PanelGroup) -> bool:
        most = self._bounds.values_max
        return any(group.states[place].entries > most for place in self._bounded)

    def overfill(self, what: Overfull) -> None:
        """Drop everything: the panel shows no number until it is rebuilt."""
        self.overfull = what
        self.groups.clear()
        self.touched.clear()
        self.mistyped.clear()
        self.failures = 0

    def drop_ended(self, ended_us: int, *, most: int) -> int:
        """Drop up to ``most`` groups whose time has ended by then; return how many."""
        ended = [key for key in self.groups if has_ended(self._plan, key, ended_us)][:most]
        for key in ended:
            del self.groups[key]
            self.touched.add(key)
        return len(ended)

    def merge(self, other: PanelPartial) -> None:
        """Add another partial of the same plan."""
        if self.overfull or other.overfull:
            self.overfill(self.overfull or other.overfull)
            return
        for place, count in other.mistyped.items():
            self._count_mistyped(place, count)
        self.failures += other.failures
        for key, theirs in other.groups.items():
            group = self.groups.get(key)
            if group is None:
                group = self.groups[key] = self._new_group()
            group.merge(theirs)
            self._drop_if_zero(key, group)

    def check_bounds(self) -> None:
        """Make a merged partial overfull if it is beyond the bounds.

        This is after the last merge: one shard may take back what another one added.
        """
        self._check_groups([*self.groups])


def has_ended(plan: PanelPlan, key: Key, ended_us: int) -> bool:
    """True if the time of a group, or of the last window of a pane, has ended by ``ended_us``."""
    for spec, value in zip(plan.keys, key, strict=True):
        if spec.find_end is None or not isinstance(value, int):
            continue
        window = spec.window
        start = value if window is None else value - (value - ORIGIN_US) % window.step_us
        if spec.find_end(start) <= ended_us:
            return True
    return False
