"""The numbers of a panel: the sum of its shards' partials, and what SELECT makes of each group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from rowtide.dashboards.fold.partial import (
    ORIGIN_US,
    Key,
    PanelBounds,
    PanelGroup,
    PanelPartial,
    has_ended,
)
from rowtide.dashboards.fold.plan import GroupWindow, OrderTerm, PanelPlan
from rowtide.dashboards.fold.states import STATES
from rowtide.dashboards.values.arithmetic import OutOfRange, order_key
from rowtide.dashboards.values.kinds import Value

__all__ = ["PanelAnswer", "answer"]

PanelFault = Literal["", "too many groups", "too many values", "out of range"]


class PanelAnswer(NamedTuple):
    """``rows`` in their order, or the ``fault`` for which there are none.

    ``mistyped`` counts the values of another type that counted as NULL, by column.
    """

    rows: Sequence[tuple[Value, ...]]
    mistyped: dict[str, int]
    fault: PanelFault = ""


def answer(
    plan: PanelPlan,
    partials: Iterable[PanelPartial],
    bounds: PanelBounds = PanelBounds(),  # noqa: B008
    *,
    ended_us: int | None = None,
) -> PanelAnswer:
    """Return the answer that the partials of all shards add up to.

    Groups whose time had ended by ``ended_us`` are left out.
    Rows that ORDER BY leaves in no order are sorted by their groups, so equal partials give equal
    answers.
    """
    whole = PanelPartial(plan, bounds)
    for partial in partials:
        whole.merge(partial)
    whole.check_bounds()
    if whole.overfull:
        return PanelAnswer([], {}, f"too many {whole.overfull}")  # type: ignore[arg-type]
    mistyped = {plan.columns[place].name: n for place, n in sorted(whole.mistyped.items())}
    if whole.failures:
        return PanelAnswer([], mistyped, "out of range")
    try:
        return PanelAnswer(_select_rows(plan, _groups(plan, whole, ended_us)), mistyped)
    except OutOfRange:
        return PanelAnswer([], mistyped, "out of range")


def _groups(
    plan: PanelPlan, whole: PanelPartial, ended_us: int | None
) -> list[tuple[Key, PanelGroup]]:
    """Return the groups that have rows, in the order of their keys, with windows made."""
    groups = [(key, group) for key, group in whole.groups.items() if group.rows]
    for place, spec in enumerate(plan.keys):
        if spec.window is not None and spec.window.form == "hop":
            groups = _add_up_panes(plan, groups, place, spec.window)
    if ended_us is not None:
        groups = [item for item in groups if not has_ended(plan, item[0], ended_us)]
    groups.sort(key=lambda item: [_place_key(value) for value in item[0]])
    if not plan.keys and not groups:
        return [((), _empty_group(plan))]
    for place, key in enumerate(plan.keys):
        if key.window is not None and key.window.form == "session":
            groups = _join_sessions(plan, groups, place, key.window.size_us)
    return groups


def _empty_group(plan: PanelPlan) -> PanelGroup:
    return PanelGroup([STATES[spec.state]() for spec in plan.states])


def _add_up_panes(
    plan: PanelPlan, panes: list[tuple[Key, PanelGroup]], place: int, window: GroupWindow
) -> list[tuple[Key, PanelGroup]]:
    """Return a hop's windows: each is the sum of its panes, and named by its start."""
    windows: dict[Key, PanelGroup] = {}
    for key, pane in panes:
        at = key[place]
        if not isinstance(at, int):
            windows[key] = pane
            continue
        start = at - (at - ORIGIN_US) % window.step_us
        while start + window.size_us > at:
            whole = (*key[:place], start, *key[place + 1 :])
            if whole not in windows:
                windows[whole] = _empty_group(plan)
            windows[whole].merge(pane)
            start -= window.step_us
    return list(windows.items())


def _join_sessions(
    plan: PanelPlan, groups: list[tuple[Key, PanelGroup]], place: int, gap_us: int
) -> list[tuple[Key, PanelGroup]]:
    """Return groups in which times at most ``gap_us`` apart are one session."""

    def others(item: tuple[Key, PanelGroup]) -> list[tuple[int, tuple[bool, Value]]]:
        return [_place_key(value) for at, value in enumerate(item[0]) if at != place]

    groups = sorted(groups, key=lambda item: (others(item), _place_key(item[0][place])))
    joined: list[tuple[Key, PanelGroup]] = []
    for _, members in groupby(groups, key=others):
        last: Value = None
        for key, group in members:
            at = key[place]
            if isinstance(at, int) and isinstance(last, int) and at - last <= gap_us:
                joined[-1][1].merge(group)
            else:
                # A new group, so that the partials keep theirs.
                start = _empty_group(plan)
                start.merge(group)
                joined.append((key, start))
            last = at
    joined.sort(key=lambda item: [_place_key(value) for value in item[0]])
    return joined


def _place_key(value: Value, *, nulls_first: bool = False) -> tuple[int, tuple[bool, Value]]:
    """Return a key that sorts values of one type with NULL first or last."""
    if value is None:
        return (0 if nulls_first else 2), (False, 0)
    return 1, order_key(value)


def _select_rows(
    plan: PanelPlan, groups: Sequence[tuple[Key, PanelGroup]]
) -> list[tuple[Value, ...]]:
    selected: list[tuple[Value, ...]] = []
    for key, group in groups:
        results = (spec.finish(group.states[spec.place]) for spec in plan.results)
        values = (*key, *results)
        if plan.having is None or plan.having(values) is True:
            selected.append(values)
    # Python's sort keeps the order of equals, so the least important term comes first.
    for term in reversed(plan.order):
        selected = _sort_by_term(selected, term)
    return [
        tuple(output.evaluate(values) for output in plan.outputs)
        for values in selected[: plan.limit]
    ]


def _sort_by_term(rows: list[tuple[Value, ...]], term: OrderTerm) -> list[tuple[Value, ...]]:
    nulls_first = term.nulls_first != term.descending
    return sorted(
        rows,
        key=lambda values: _place_key(term.evaluate(values), nulls_first=nulls_first),
        reverse=term.descending,
    )
