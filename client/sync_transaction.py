"""A local transaction of the plain form; ``async_transaction.py`` has the asyncio form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, Self, TypeVar

from rowtide.client.batches import RowWrite, write_rows
from rowtide.client.operations import Expect, Operations, Steps
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.ranges import RangeReading, RangeSpec
from rowtide.client.row_values import Input, KeyInput, RowDict, RowInput
from rowtide.core.values.errors import StoreError, Unavailable

__all__ = ["LocalTransaction"]

_Result = TypeVar("_Result")


class _Run(Protocol):
    """Sends the requests that an operation yields and returns its result."""

    def __call__(self, steps: Steps[_Result]) -> _Result: ...


class LocalTransaction:
    """Reads and writes rows of one table that have the same first key column.

    The commit makes all its writes visible at once. Until then the server rejects other writes to
    these rows. The server ends a transaction after 60 s. It rejects rows of other partitions with
    OTSDataOutOfRange.
    """

    def __init__(self, run: _Run, operations: Operations, table: str, partition: Input) -> None:
        self._run = run
        self._operations = operations
        self._table = table
        self._partition = partition
        self._id = ""

    def __enter__(self) -> Self:
        """Start the transaction. Rejected while another transaction locks the rows."""
        self._id = self._run(self._operations.start_transaction(self._table, self._partition))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            # If this fails, the server ends the transaction later. The first error is the one to
            # report.
            with suppress(StoreError):
                self.abort()

    def commit(self) -> None:
        """Apply the writes; do nothing if the transaction has ended.

        ``Unavailable`` leaves the transaction open. After ``OutcomeUnknown`` it is not aborted.
        """
        transaction, self._id = self._id, ""
        try:
            if transaction:
                self._run(self._operations.commit(transaction))
        except Unavailable:
            self._id = transaction
            raise

    def abort(self) -> None:
        """Drop the writes; do nothing if the transaction has ended."""
        transaction, self._id = self._id, ""
        if transaction:
            self._run(self._operations.abort(transaction))

    def _open_id(self) -> str:
        if not self._id:
            raise RuntimeError("the transaction is not open: use it within its with block")
        return self._id

    def put(
        self, row: RowInput, *, expect: Expect = "anything", condition: Predicate | None = None
    ) -> RowDict:
        """Replace a row, see ``Client.put``."""
        return self._run(self._operations.put(self._table, row, expect, condition, self._open_id()))

    def update(
        self,
        row: RowInput,
        *,
        delete: Sequence[str] = (),
        increment: Mapping[str, int] | None = None,
        returning: Sequence[str] = (),
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Change columns of a row, see ``Client.update``."""
        return self._run(
            self._operations.update(
                self._table,
                row,
                delete=delete,
                increment=increment or {},
                returning=returning,
                expect=expect,
                condition=condition,
                transaction=self._open_id(),
            )
        )

    def delete(
        self, key: KeyInput, *, expect: Expect = "anything", condition: Predicate | None = None
    ) -> None:
        """Delete a row, see ``Client.delete``."""
        self._run(self._operations.delete(self._table, key, expect, condition, self._open_id()))

    def get(
        self,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> RowDict | None:
        """Return a row as the transaction sees it, see ``Client.get``."""
        return self._run(self._operations.get(self._table, key, columns, filter, self._open_id()))

    def write(self, writes: Sequence[RowWrite]) -> list[RowDict]:
        """Write rows, see ``Client.write``."""
        return self._run(
            write_rows(self._operations, writes, atomic=False, transaction=self._open_id())
        )

    def range(
        self,
        start: KeyInput | None = None,
        end: KeyInput | None = None,
        *,
        reverse: bool = False,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
        limit: int | None = None,
    ) -> Iterator[RowDict]:
        """Yield rows of the partition as the transaction sees them, see ``Client.range``.

        Bounds omit the first key column.
        """
        spec = RangeSpec(
            self._table,
            start,
            end,
            None,
            reverse,
            columns,
            filter,
            limit,
            transaction=self._open_id(),
            partition=self._partition,
        )
        reading = RangeReading(self._operations, spec)
        while reading.has_more:
            yield from self._run(reading.next_page())
