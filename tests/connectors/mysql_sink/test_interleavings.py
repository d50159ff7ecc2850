"""Two transactions on one key, stopped between two steps: whichever waits, the newer one wins."""

from __future__ import annotations

import asyncio

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.mysql.batch import BatchWriter
from rowtide.connectors.sinks.mysql.sink import MysqlSink
from rowtide.core.values.schema import INTEGER, KeyColumn
from tests.connectors.mysql_sink.sinks import open_sink
from tests.connectors.row_histories import delete, put, shape
from tests.support.waiting import SOON_S, until_async

pytestmark = pytest.mark.system

LOOK_S = 0.2
"""InnoDB tells anew what transactions do only once nobody has asked for 0.1 s."""
WAITING = "SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000
PUT = SinkBatch("things", "s", [put(STAMP + 5, [1], {"a": 5})])
DELETE = SinkBatch("things", "s", [delete(STAMP + 6, [1])])
PAGE = SinkBatch("things", "s", [], (b"", b""), STAMP + 6)


@pytest.mark.parametrize("primary_key", ["native", "hashed"])
@pytest.mark.parametrize("ending", [DELETE, PAGE], ids=["delete", "page"])
@pytest.mark.parametrize("held", ["put", "ending"])
async def test_a_late_row_and_what_ends_it_at_once(
    sql_server: SqlServer, database: str, primary_key: str, ending: SinkBatch, held: str
) -> None:
    first, second = (PUT, ending) if held == "put" else (ending, PUT)
    async with open_sink(sql_server, database, TABLE, primary_key=primary_key) as sink:
        await sink.apply(SinkBatch("things", "s", [put(STAMP, [9], {"a": 0})]))
        async with (
            asyncio.TaskGroup() as tasks,
            sink._connections.lend() as connection,
            connection.transaction(),
        ):
            await BatchWriter(connection, sink.table).write(first, list(first.rows))
            await _wait_until_none_waits(sql_server)
            waiting = tasks.create_task(_apply_batch(sink, second))
            await _wait_until_it_waits(sql_server, waiting)
        assert 1 not in [row[0] for row in sql_server.rows(f"SELECT id FROM {database}.things")]


async def _apply_batch(sink: MysqlSink, batch: SinkBatch) -> None:
    assert await sink.apply(batch) == []


async def _wait_until_none_waits(sql_server: SqlServer) -> None:
    """Return when InnoDB does not tell any more of one that waited before."""

    async def waits_none() -> bool:
        return not await asyncio.to_thread(sql_server.rows, WAITING)

    await until_async(waits_none, s_max=SOON_S, poll_s=LOOK_S)


async def _wait_until_it_waits(sql_server: SqlServer, task: asyncio.Task[None]) -> None:
    """Return when a transaction waits for a lock, which only the task's can."""
    while not await asyncio.to_thread(sql_server.rows, WAITING):
        assert not task.done(), "it did not wait"
        await asyncio.sleep(LOOK_S)
