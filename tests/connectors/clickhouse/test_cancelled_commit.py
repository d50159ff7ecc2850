"""A commit that is cancelled ends so, also where the server is away by then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowtide.connectors.floors import Floor
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.clickhouse.sink import ClickhouseSettings, ClickhouseSink
from rowtide.connectors.sinks.columnar.layout import Cells
from rowtide.core.values.errors import Unavailable
from tests.connectors.row_histories import put
from tests.support.waiting import SOON_S


class Hanging(ClickhouseSink):
    """A server that does not answer inserts and is gone afterwards."""

    def __init__(self) -> None:
        super().__init__(ClickhouseSettings("http://127.0.0.1:1"))
        self.inserting = asyncio.Event()
        self.looked = False

    async def _insert(self, rows: Sequence[SinkRow], cells: Cells) -> None:
        self.inserting.set()
        await asyncio.Event().wait()

    async def _look_for_floors(self, rows: Sequence[SinkRow], new: Sequence[Floor]) -> None:
        self.looked = True
        raise Unavailable("it is gone")


async def test_a_cancelled_insert_is_not_taken_for_a_server_that_is_away() -> None:
    """As Unavailable the batch was sent again and again, by a process that had to stop it."""
    sink = Hanging()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        applied = tasks.create_task(sink.apply(SinkBatch("t", "s", [put(5, [1], {})])))
        await sink.inserting.wait()
        applied.cancel()
    assert applied.cancelled()
    assert sink.looked
