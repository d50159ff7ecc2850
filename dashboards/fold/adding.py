"""The functions that add a row to the groups of a partial, compiled for one plan.

Everything of a row is evaluated before anything is added: a row counts wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rowtide.dashboards.fold.plan import (
    ORIGIN_US,
    AddToGroup,
    EvaluateRow,
    GroupKey,
    RowAdding,
    StateSpec,
)
from rowtide.dashboards.values.arithmetic import canonical
from rowtide.dashboards.values.kinds import SqlType
from rowtide.dashboards.values.row_code import RowCode, compile_function, join

__all__ = ["compile_adding"]


class _Lines:
    """Source that grows, and the values that it has names for."""

    def __init__(self, arguments: str) -> None:
        self.lines = [f"def evaluate({arguments}):"]
        self.names: dict[str, object] = {}

    def add(self, text: str, *codes: RowCode) -> None:
        """Add a line, in which ``{0}`` is the first code."""
        self.lines.append("    " + text.format(*(code.text for code in codes)))
        for code in codes:
            self.names |= code.names


def compile_adding(
    condition: RowCode | None, keys: Sequence[GroupKey], states: Sequence[StateSpec]
) -> RowAdding:
    """Return the functions that evaluate a row, and add what was evaluated to its group."""
    return RowAdding(_compile_evaluation(condition, keys, states), _compile_addition(states))


def _compile_evaluation(
    condition: RowCode | None, keys: Sequence[GroupKey], states: Sequence[StateSpec]
) -> EvaluateRow:
    source = _Lines("row")
    if condition is not None:
        source.add("if ({0}) is not True: return None", condition)
    added: list[str] = []
    for place, spec in enumerate(states):
        # Before FILTER, as in DuckDB: an overflow in a row that is left out is one, too.
        if spec.argument is not None:
            source.add(f"a{place} = {{0}}", spec.argument)
        if spec.condition is not None:
            source.add(f"c{place} = {{0}}", spec.condition)
        value = "True" if spec.argument is None else f"a{place}"
        added.append(value if spec.condition is None else f"{value} if c{place} is True else None")
    places = "".join(f"{{{place}}}, " for place in range(len(keys)))
    values = "".join(f", {value}" for value in added)
    source.add(f"return ({places}){values or ','}", *map(_key_code, keys))
    return cast(EvaluateRow, compile_function(source.lines, source.names))


def _compile_addition(states: Sequence[StateSpec]) -> AddToGroup:
    source = _Lines("group, found, times")
    source.add("group.rows += times")
    source.add("states = group.states")
    for place, spec in enumerate(states):
        always = spec.argument is None and spec.condition is None
        test = "" if always else f"if found[{place + 1}] is not None: "
        if spec.state == "count":
            source.add(f"{test}states[{place}].count += times")
        else:
            source.add(f"{test}states[{place}].add(found[{place + 1}], times)")
    return cast(AddToGroup, compile_function(source.lines, source.names))


def _key_code(key: GroupKey) -> RowCode:
    """Return the code of a row's value of one key: the start of its pane for a hop."""
    code = key.code
    if key.kind is SqlType.DOUBLE:
        return join("{f}({0})", code, f=canonical)
    if key.window is None or key.window.form == "session":
        return code
    pane = f"{{t}} - ({{t}} - {ORIGIN_US}) % {key.window.pane_us}"
    return join(f"None if ({{t}} := {{0}}) is None else {pane}", code)
