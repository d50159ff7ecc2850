"""The answer of a request that writes one row."""

from __future__ import annotations

import asyncio

from rowtide.core.rows.mutation import Outcome
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import Table
from rowtide.stream.api.row_answers import write_answer
from rowtide.stream.measures.consumption import Consumption

__all__ = ["WriteReply"]


class WriteReply:
    """The answer of one write from its outcome, whose units are counted."""

    __slots__ = ("_consumption", "_partition_key", "_table", "future")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        consumption: Consumption,
        table: Table,
        partition_key: bytes | None,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._consumption = consumption
        self._table = table
        self._partition_key = partition_key

    def __call__(self, outcome: Outcome | StoreError) -> None:
        future = self.future
        if isinstance(outcome, StoreError):
            if not future.done():
                future.set_exception(outcome)
            return
        row, read, write = outcome
        self._consumption.count(self._table, self._partition_key, read, write)
        if not future.done():  # Otherwise the client has disconnected.
            future.set_result(write_answer(read, write, row))
