"""The answer of a BatchWriteRow: each row's result in request order, once all are known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice

from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import Outcome
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.core.values.schema import Table
from rowtide.stream.api.batch_write import BatchRow
from rowtide.stream.api.row_answers import encode_consumed, field
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.shard.waiting import Tell

__all__ = ["BatchReply", "BatchUse", "batch_answer", "ok_field", "row_done", "row_error"]


class BatchUse:
    """Counts the units of a batch's rows; consecutive rows of one table are counted at once."""

    def __init__(self, consumption: Consumption, instance: str, rows: Sequence[BatchRow]) -> None:
        self.rows = rows
        self._consumption = consumption
        self._instance = instance
        self._table: Table | None = None
        self._read = self._write = 0

    def add(self, index: int, read: int, write: int) -> None:
        """Add the units of one row."""
        row, table, _, _ = self.rows[index]
        if table is not self._table or self._consumption.by_partition_key:
            self.count()
            self._table = table
        if self._consumption.by_partition_key and table is not None:
            self._consumption.count(table, row.key[0][1], read, write)
        else:
            self._read += read
            self._write += write

    def add_failure(self, index: int) -> None:
        """Note that one row failed; if its table does not exist, that costs a unit."""
        if self.rows[index].table is None:
            self._consumption.count_missing(self._instance, write=1)

    def count(self) -> None:
        """Pass the units that were added since the last call on to ``Consumption``."""
        if self._table is not None and (self._read or self._write):
            self._consumption.count(self._table, None, self._read, self._write)
        self._read = self._write = 0


class BatchReply:
    """A batch's answer, as a future. ``tables`` has (name, number of rows) of each."""

    def __init__(
        self,
        tables: Sequence[tuple[str, int]],
        used: BatchUse,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._tables = tables
        self._used = used
        self._results = [b""] * len(used.rows)
        self._missing = len(used.rows)
        self._unknown = False

    def row(self, index: int) -> Tell:
        """Return the function that takes the result of one row."""
        return partial(self._take_result, index)

    def _take_result(self, index: int, outcome: Outcome | StoreError) -> None:
        if isinstance(outcome, StoreError):
            self._used.add_failure(index)
            self._results[index] = field(2, row_error(outcome))
        else:
            row, read, write = outcome
            self._used.add(index, read, write)
            self._results[index] = ok_field(read, write) if not row else _row_field(outcome)
        self._missing -= 1
        if isinstance(outcome, OutcomeUnknown):
            self._unknown = True
        if not self._missing:
            self._used.count()
            if not self.future.done():
                answer = self._answer()
                self.future.set_result(UnknownWithin(answer) if self._unknown else answer)

    def _answer(self) -> bytes:
        return batch_answer(self._tables, self._results)


def batch_answer(tables: Sequence[tuple[str, int]], results: Iterable[bytes]) -> bytes:
    """Return the answer with these results, each a whole field, in the order of the rows."""
    rows = iter(results)
    return b"".join(
        field(1, field(1, name.encode()) + b"".join(islice(rows, count))) for name, count in tables
    )


def _row_field(outcome: Outcome) -> bytes:
    """Return one row's result in a batch write, as field 2 of its table's."""
    done = row_done(outcome.read_units, outcome.write_units)
    return field(2, done + field(4, HEADER + outcome.row))


@lru_cache(4096)
def ok_field(read: int, write: int) -> bytes:
    """Return a result without a row, which most requests want."""
    return field(2, row_done(read, write))


@lru_cache(4096)
def row_done(read: int, write: int) -> bytes:
    """Return the result of a row that succeeded, without the row itself."""
    return b"\x08\x01" + _renumber(encode_consumed(read, write), 3)


def row_error(error: StoreError) -> bytes:
    """Return the result of a row that failed."""
    encoded = pb.Error(code=error.code, message=error.message)
    return b"\x08\x00" + field(2, encoded.SerializeToString())


def _renumber(encoded: bytes, number: int) -> bytes:
    return bytes((number << 3 | 2,)) + encoded[1:]
