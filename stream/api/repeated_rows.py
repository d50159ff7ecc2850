"""Rejects the conditions of rows that a BatchWriteRow names more than once.

Rows of a batch have no order on which a client may rely. So a condition on a row that the
same batch changes has no meaning. A row without a condition may be repeated: all its
changes are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rowtide.core.rows.mutation import IGNORE
from rowtide.core.values.errors import invalid
from rowtide.stream.api.batch_write import BatchRow
from rowtide.stream.api.like_rows import Row, make_rows

__all__ = ["refuse_repeated"]


def refuse_repeated(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of one table; a row with a condition and a repeated key is rejected."""
    if len(rows) < 2 or not any(map(_is_conditional, rows)):
        return rows
    keys = [_key_values(row) for row in rows]
    if len({*keys}) == len(keys):
        return rows
    counts = Counter(keys)
    return [
        _refuse_row(row) if counts[values] > 1 and _is_conditional(row) else row
        for row, values in zip(rows, keys, strict=True)
    ]


def _is_conditional(row: Row) -> bool:
    if not isinstance(row, BatchRow):
        return row[0].expectation(row[1]) != IGNORE
    change = row.change
    return change is not None and (change.expectation != IGNORE or change.condition is not None)


def _key_values(row: Row) -> tuple[bytes, ...]:
    """Return the variants of a row's key; empty for a row that is already rejected."""
    if not isinstance(row, BatchRow):
        return row[0].key_values(row[1])
    if row.change is None:
        return ()
    return tuple(value for _, value in row.row.key)


def _refuse_row(row: Row) -> BatchRow:
    ((change_row, table, change, _),) = make_rows([row])
    assert change is not None, "a row has a condition"
    what = "row exist expectation" if change.expectation != IGNORE else "row condition"
    failure = invalid(f"Repeated rows do not support {what} check in BatchModify.")
    return BatchRow(change_row, table, None, failure)
