"""Random histories, and rows on their way when the server is killed: the server holds the model."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from demo.servers.sql_server import SqlServer
from rowtide.connectors.rows import SinkBatch, TableShape
from rowtide.connectors.sinks.mysql.sink import MysqlSink
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import INTEGER, KeyColumn
from tests.connectors.mysql_sink.conftest import MakeServer
from tests.connectors.mysql_sink.sinks import mysql_sink, open_sink
from tests.connectors.row_histories import Model, delete, histories, put, shape
from tests.support.searches import examples

pytestmark = pytest.mark.system

STAMP = 1_700_000_000_000_000
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Without shrinking, which takes minutes on a real server."""

AVAILABLE_S_MAX = 300.0
"""While its server is killed over and over, others may be quicker to use it, time after time."""


@settings(max_examples=examples(8, 20), phases=PHASES)
@given(
    history=histories(pages=True),
    turns=st.lists(st.booleans(), min_size=20, max_size=20),
    primary_key=st.sampled_from(["native", "hashed"]),
)
def test_the_target_holds_what_the_batches_say(
    sql_server: SqlServer,
    history: tuple[tuple[KeyColumn, ...], list[SinkBatch]],
    turns: list[bool],
    primary_key: str,
) -> None:
    columns, batches = history
    asyncio.run(_deliver(sql_server, TableShape("things", columns), batches, turns, primary_key))


async def _deliver(
    sql_server: SqlServer,
    table: TableShape,
    batches: list[SinkBatch],
    turns: list[bool],
    primary_key: str,
) -> None:
    database, model = f"d{uuid4().hex}", Model()
    sql_server.execute(f"CREATE DATABASE {database}")
    try:
        async with (
            open_sink(sql_server, database, table, primary_key=primary_key) as one,
            open_sink(sql_server, database, table, primary_key=primary_key) as other,
        ):
            for at, batch in enumerate(batches):
                sink = one if turns[at % len(turns)] else other
                assert await sink.apply(batch) == []
                model.apply(batch)
                await _compare(sink, model)
    finally:
        sql_server.execute(f"DROP DATABASE {database}")


async def _compare(sink: MysqlSink, model: Model) -> None:
    held = [
        (r.key_bytes, r.stamp, dict(r.columns)) for r in await sink.read_rows(b"", b"", limit=99)
    ]
    assert held == [
        (key, stamp, sink.convert_columns(columns)) for key, stamp, columns in model.living()
    ]


@settings(max_examples=examples(4, 8), phases=PHASES)
@given(
    history=histories(pages=True),
    writers=st.integers(2, 4),
)
def test_batches_at_once_in_any_order_end_in_what_they_say(
    sql_server: SqlServer,
    history: tuple[tuple[KeyColumn, ...], list[SinkBatch]],
    writers: int,
) -> None:
    columns, batches = history
    asyncio.run(_together(sql_server, TableShape("things", columns), batches, writers))


async def _together(
    sql_server: SqlServer, table: TableShape, batches: list[SinkBatch], writers: int
) -> None:
    database, model = f"d{uuid4().hex}", Model()
    sql_server.execute(f"CREATE DATABASE {database}")
    for batch in batches:
        model.apply(batch)
    try:
        async with open_sink(sql_server, database, table, connections=writers) as sink:

            async def work(at: int) -> None:
                for batch in batches[at::writers]:
                    await wait_until_applied(sink, batch)

            async with asyncio.TaskGroup() as tasks:
                for at in range(writers):
                    tasks.create_task(work(at))
            await _compare(sink, model)
    finally:
        sql_server.execute(f"DROP DATABASE {database}")


async def wait_until_applied(sink: MysqlSink, batch: SinkBatch) -> None:
    """Apply as the runtime does: again for as long as the sink is not available."""
    async with asyncio.timeout(AVAILABLE_S_MAX):
        while True:
            try:
                assert await sink.apply(batch) == []
                return
            except Unavailable:
                await asyncio.sleep(0.02)


async def test_a_server_killed_in_the_middle_of_batches_loses_and_repeats_nothing(
    make_server: MakeServer, cache_dir: Path, tmp_path: Path
) -> None:
    table = shape(KeyColumn("id", INTEGER))
    server = make_server(tmp_path, cache_dir)
    server.start()
    try:
        server.execute("CREATE DATABASE d")
        sink, model = mysql_sink(server, "d", table="things"), Model()
        await sink.open(table)
        lanes = [_lane(lane) for lane in range(3)]
        progress = asyncio.Event()
        applied: list[SinkBatch] = []

        async def write(lane: int) -> None:
            for batch in lanes[lane]:
                await wait_until_applied(sink, batch)
                model.apply(batch)
                applied.append(batch)
                progress.set()

        async def kill() -> None:
            while len(applied) < 20:
                progress.clear()
                await progress.wait()
                server.kill()
                await asyncio.to_thread(server.start)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kill())
            for lane in range(len(lanes)):
                tasks.create_task(write(lane))
        held = [(r.key_bytes, r.stamp) for r in await sink.read_rows(b"", b"", limit=9999)]
        repeated = [key for key, count in Counter(key for key, _ in held).items() if count > 1]
        assert repeated == []
        assert held == [(key, stamp) for key, stamp, _ in model.living()]
        assert len(held) > 500
        await sink.close()
    finally:
        server.kill()


def _lane(lane: int) -> list[SinkBatch]:
    """Return batches of one shard's keys: each sets fifty rows and ends ten of the former."""
    batches = []
    for at in range(8):
        stamp, first = STAMP + at, lane * 10_000 + at * 50
        rows = [put(stamp, [first + number], {"lane": lane}) for number in range(50)]
        if at:
            rows += [delete(stamp, [first - 1 - number]) for number in range(10)]
        batches.append(SinkBatch("things", f"shard-{lane}", rows))
    return batches
