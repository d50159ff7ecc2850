"""States of a source's tables, cut to what fits into a report.

A report is one cell of a row, and a cell has at most 2 MiB. A source may follow any number of
tables and may report texts of any length, so both are cut here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from rowtide.connectors.sources.source import TableState

__all__ = ["FAILED", "ReportedTables", "fit_states"]

FAILED = "failed"
TEXT_MAX = 1000
"""Characters of a name, a reason or a remedy."""
BYTES_MAX = 1024 * 1024
"""Bytes of all states as JSON. The rest of the report has room beside them."""

_ORDER = (FAILED, "copying", "following")


class ReportedTables(NamedTuple):
    """``tables`` are sorted by name. ``failed`` also counts the omitted ones."""

    tables: Sequence[TableState] = ()
    failed: int = 0
    omitted: int = 0


def fit_states(states: Iterable[TableState]) -> ReportedTables:
    """Return the states with texts cut, without those that do not fit.

    Failed tables come first, because an operator must act on them.
    """
    ordered = sorted(map(_cut_texts, states), key=_urgency)
    kept: list[TableState] = []
    size = 0
    for state in ordered:
        size += len(json.dumps(asdict(state))) + len(", ")
        if size > BYTES_MAX:
            break
        kept.append(state)
    kept.sort(key=lambda state: state.table)
    failed = sum(state.state == FAILED for state in ordered)
    return ReportedTables(kept, failed, len(ordered) - len(kept))


def _cut_texts(state: TableState) -> TableState:
    """Return a state whose texts are one line each, of bounded length."""
    return replace(
        state,
        table=_line(state.table),
        target=_line(state.target),
        state=_line(state.state),
        reason=_line(state.reason),
        remedy=_line(state.remedy),
    )


def _line(text: str) -> str:
    return " ".join(text.split())[:TEXT_MAX]


def _urgency(state: TableState) -> tuple[int, str]:
    rank = _ORDER.index(state.state) if state.state in _ORDER else len(_ORDER)
    return rank, state.table
