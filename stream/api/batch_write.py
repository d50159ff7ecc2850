"""Rows of a BatchWriteRow that are written together: within a transaction, or atomically.

A batch is one or the other: an atomic batch within a transaction is rejected row by row.

Every row gets its own result through its ``Tell``, in any order. The rows of an atomic
batch are written table by table: all rows of a table are applied, or none. They have one
partition key and so one shard, which writes them as one group. Two tables are two groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core.protocol.plainbuffer import RowChange
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.group import AtomicBatch
from rowtide.core.values.errors import OutcomeUnknown, StoreError, invalid
from rowtide.core.values.schema import Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.transaction import Session
from rowtide.stream.shard.waiting import Tell

__all__ = ["BatchRow", "write_atomically", "write_within"]


class BatchRow(NamedTuple):
    """One row of a batch write: its change of a table, or the reason why it has none."""

    row: RowChange
    table: Table | None
    change: ChangeRequest | None
    failure: StoreError | None


def write_within(
    session: Session, rows: Sequence[BatchRow], tells: Sequence[Tell], *, atomic: bool
) -> None:
    """Write rows within a transaction; each succeeds or fails independently."""
    for row, tell in zip(rows, tells, strict=True):
        if atomic:
            tell(invalid("An atomic BatchWriteRow is not supported in a local transaction."))
            continue
        if row.table is None or row.change is None:
            tell(_failure(row))
            continue
        try:
            outcome: Outcome | StoreError = session.apply(row.table, row.change)
        except StoreError as error:
            outcome = error
        tell(outcome)


def write_atomically(
    directory: Directory,
    rows: Sequence[BatchRow],
    tells: Sequence[Tell],
) -> None:
    """Write all rows of each table, or none of them."""
    groups: dict[int, AtomicRows] = {}
    for row, tell in zip(rows, tells, strict=True):
        table_id = row.table.table_id if row.table is not None else -1
        groups.setdefault(table_id, AtomicRows()).add(row, tell)
    for group in groups.values():
        group.write(directory)


class AtomicRows:
    """The rows of one table in an atomic batch, in their order, with their callbacks."""

    def __init__(self) -> None:
        self._rows: list[BatchRow] = []
        self._tells: list[Tell] = []
        self._batch: AtomicBatch | None = None
        self._is_done = False

    def add(self, row: BatchRow, tell: Tell) -> None:
        """Add the next row."""
        self._rows.append(row)
        self._tells.append(tell)

    def write(self, directory: Directory) -> None:
        """Write all rows or none, and report the result of each."""
        batch = self._batch = AtomicBatch([r.change for r in self._rows if r.change is not None])
        try:
            table = self._fitting()
            batch.check_scope()
            directory.require_space()
            directory.consumption.require(table, batch.partition_key)
            directory.owner(table, self._rows[0].row.key).submit_group(batch, self._take_outcome)
        except StoreError as error:
            self._take_outcome(error)

    def _fitting(self) -> Table:
        """Return the table. Raises if a row does not fit it: then no row is written."""
        for index, row in enumerate(self._rows):
            if row.change is None:
                assert self._batch is not None, "rows are being written"
                self._batch.refused = index
                raise _failure(row)
        table = self._rows[0].table
        assert table is not None, "a row with a change has a table"
        return table

    def _take_outcome(self, outcome: Outcome | StoreError) -> None:
        """Report the batch's outcome to every row; a second report, after an unknown one,
        is ignored.
        """
        if self._is_done:
            return
        self._is_done = True
        if not isinstance(outcome, StoreError):
            self._report_outcomes()
            return
        assert self._batch is not None, "rows were being written"
        for index, (row, tell) in enumerate(zip(self._rows, self._tells, strict=True)):
            if isinstance(outcome, OutcomeUnknown):
                tell(outcome)
            else:
                tell(row.failure or self._batch.failure(index, outcome))

    def _report_outcomes(self) -> None:
        assert self._batch is not None, "rows were being written"
        for tell, outcome in zip(self._tells, self._batch.outcomes, strict=True):
            tell(outcome)


def _failure(row: BatchRow) -> StoreError:
    assert row.failure is not None, "a row has a change or the reason it has none"
    return row.failure
