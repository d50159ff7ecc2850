"""Rows of a BatchWriteRow that a kernel has read: plain writes that fit their table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowtide.core.native import PlainRow
from rowtide.core.rows.mutation import IGNORE, ChangeRequest
from rowtide.core.values import key
from rowtide.core.values.schema import Table
from rowtide.stream.api.batch_write import BatchRow

__all__ = ["PlainRows"]


class PlainRows(NamedTuple):
    """The plain rows of one table, by their places in it; None if a row is not plain.

    ``make`` reads a row again in the general way, for callers that need a ``BatchRow``.
    """

    table: Table
    rows: Sequence[PlainRow | None]
    make: Callable[[int], BatchRow]

    def first_value(self, index: int) -> bytes:
        """Return the first key column's variant of a row."""
        return self.key_values(index)[0]

    def expectation(self, index: int) -> int:
        """Return the existence expectation of a row."""
        return self._row(index)[1]

    def has_expectations(self) -> bool:
        """True if a row has an existence expectation. All rows are plain."""
        return any(row is not None and row[1] != IGNORE for row in self.rows)

    def key_values(self, index: int) -> tuple[bytes, ...]:
        """Return the variants of a row's key."""
        return tuple(key.decode(self._row(index)[3]))

    def row(self, index: int) -> BatchRow:
        """Return one row."""
        return self.make(index)

    def change(self, index: int) -> ChangeRequest:
        """Return one row as a change."""
        change = self.make(index).change
        assert change is not None, "the row was valid when it was read"
        return change

    def _row(self, index: int) -> PlainRow:
        row = self.rows[index]
        assert row is not None, "the row is plain"
        return row
