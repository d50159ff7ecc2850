"""Writes a BatchWriteRow of which every row is plain: a group for each shard, one answer.

Each row gets the result that it would get alone. The result may depend on the row's
partition key (units by partition key, open transactions), or the shard may not be found.
Then rows are written one by one instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from rowtide.core.native import PlainRow
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.plain_batch import PlainBatch
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.batch_reply import batch_answer, ok_field, row_error
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.plain_rows import PlainRows
from rowtide.stream.api.row_answers import field
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["write_plain"]


def write_plain(
    directory: Directory, tables: Sequence[PlainRows], loop: asyncio.AbstractEventLoop
) -> asyncio.Future[bytes] | None:
    """Write all rows of ``tables``; None: nothing was written, and they must go one by one."""
    if directory.consumption.by_partition_key:
        return None
    try:
        directory.require_space()
        parts = _parts(directory, tables)
    except StoreError:
        return None  # Each row that it concerns gets the error.
    if any(part.owner.transactions.locks for part in parts):
        return None
    reply = _Reply(tables, directory.consumption, loop)
    for part in parts:
        batch = PlainBatch(part.rows(), part.change)
        tell = partial(reply.take_outcome, part, batch)
        try:
            part.owner.submit_group(batch, tell)
        except StoreError as error:
            tell(error)
    return reply.future


class _Part(NamedTuple):
    """The rows of one table for one shard, by their places in the table.

    ``begin`` is the table's first place in the request.
    """

    owner: ShardOwner
    its: PlainRows
    begin: int
    places: Sequence[int]

    def rows(self) -> list[PlainRow]:
        """Return its rows, all of which are plain."""
        if len(self.places) == len(self.its.rows):
            return cast(list[PlainRow], self.its.rows)
        return cast(list[PlainRow], [self.its.rows[place] for place in self.places])

    def change(self, index: int) -> ChangeRequest:
        """Return one of its rows as a change."""
        return self.its.change(self.places[index])


def _parts(directory: Directory, tables: Sequence[PlainRows]) -> list[_Part]:
    """Divide the rows among the shards. Raises ``Unavailable`` if one is not found."""
    parts: list[_Part] = []
    begin = 0
    for its in tables:
        places: Mapping[ShardRange, Sequence[int]]
        if len(its.table.shards) == 1:
            places = {its.table.shards[0]: range(len(its.rows))}
        else:
            places = _divide(directory, its)
        parts += [_Part(directory.shard(s), its, begin, where) for s, where in places.items()]
        begin += len(its.rows)
    return parts


def _divide(directory: Directory, its: PlainRows) -> dict[ShardRange, list[int]]:
    """Return the places of the rows of each shard of a table."""
    places: dict[ShardRange, list[int]] = {}
    for place, row in enumerate(its.rows):
        assert row is not None, "every row is plain"
        shard = directory.catalog.shard_for(its.table, row[3])
        places.setdefault(shard, []).append(place)
    return places


class _Reply:
    """The answer: every row's result in the request's order, once all are known."""

    def __init__(
        self,
        tables: Sequence[PlainRows],
        consumption: Consumption,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._consumption = consumption
        self._tables = [(its.table.name, len(its.rows)) for its in tables]
        self._results = [b""] * sum(count for _, count in self._tables)
        self._missing = len(self._results)
        self._unknown = False

    def take_outcome(self, part: _Part, batch: PlainBatch, outcome: Outcome | StoreError) -> None:
        """Take the outcome of a part. A later one of the same part is ignored."""
        if self._results[part.begin + part.places[0]]:
            return
        if isinstance(outcome, StoreError):
            self._unknown = self._unknown or isinstance(outcome, OutcomeUnknown)
            self._take(part, [field(2, row_error(outcome))] * len(part.places))
        else:
            self._take(part, self._count_results(part.its.table, batch.outcomes))
        if not self._missing and not self.future.done():
            answer = batch_answer(self._tables, self._results)
            self.future.set_result(UnknownWithin(answer) if self._unknown else answer)

    def _take(self, part: _Part, results: Sequence[bytes]) -> None:
        if len(part.places) == len(part.its.rows):
            self._results[part.begin : part.begin + len(results)] = results
        else:
            for place, result in zip(part.places, results, strict=True):
                self._results[part.begin + place] = result
        self._missing -= len(results)

    def _count_results(self, table: Table, outcomes: Sequence[Outcome | StoreError]) -> list[bytes]:
        """Return the results of rows, and count their units."""
        first, number = outcomes[0], len(outcomes)
        if not isinstance(first, StoreError) and outcomes.count(first) == number:
            # The usual case: all rows were written, and each is as small as the others.
            _, read, write = first
            self._consumption.count(table, None, number * read, number * write)
            return [ok_field(read, write)] * number
        results: list[bytes] = []
        reads = writes = 0
        for outcome in outcomes:
            if isinstance(outcome, StoreError):
                results.append(field(2, row_error(outcome)))
                continue
            _, read, write = outcome
            reads += read
            writes += write
            results.append(ok_field(read, write))
        if reads or writes:
            self._consumption.count(table, None, reads, writes)
        return results
