"""Refuses the conditions of rows that a BatchWriteRow names more than once.

Rows of a batch have no order that a client may rely on, so a condition on a row that the same batch
changes has no meaning. A row without a condition may come as often as it likes: all are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rowtide.core.errors import Rejected, invalid
from rowtide.core.mutation import IGNORE, Change
from rowtide.core.plainbuffer import RowChange
from rowtide.stream.operations.batch_write import BatchRow
from rowtide.stream.operations.like_rows import Row, made

__all__ = ["refuse_repeated"]


def refuse_repeated(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of one table; those with a condition are refused if their key repeats."""
    if len(rows) < 2 or not any(map(_is_conditional, rows)):
        return rows
    found = made(rows)
    counts = Counter(_key_values(row.row) for row in found if row.change is not None)
    return [
        BatchRow(row.row, row.table, None, _refusal(row.change))
        if row.change is not None and _is_conditional(row) and counts[_key_values(row.row)] > 1
        else row
        for row in found
    ]


def _is_conditional(row: Row) -> bool:
    if not isinstance(row, BatchRow):
        return row[0].alike.expectation != IGNORE
    change = row.change
    return change is not None and (change.expectation != IGNORE or change.condition is not None)


def _key_values(row: RowChange) -> tuple[bytes, ...]:
    return tuple(value for _, value in row.key)


def _refusal(change: Change) -> Rejected:
    what = "row exist expectation" if change.expectation != IGNORE else "row condition"
    return invalid(f"Repeated rows do not support {what} check in BatchModify.")
