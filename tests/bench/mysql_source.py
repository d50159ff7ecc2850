"""Speed of the MySQL source: ``python -m tests.bench.mysql_source`` (see ``--help``).

A MariaDB, or a MySQL, and a rowtide are children of this process, which is the source. The rows are
flights: a key and 19 columns. "alone" writes nowhere: it is what reading and decoding cost.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import click
import uvloop

from demo.servers.mariadb import HOST, QUICK, MariaDB
from demo.servers.mysql import MySQL
from demo.servers.sql_server import SqlServer
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.mysql.source import make_source
from rowtide.connectors.sources.source import SourceTarget
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.up import Ready, Up
from rowtide.stream.measures.collector import tune_collector
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.processes import Cpu, cpu_of
from tests.bench.report import Result, as_markdown, percentile

COLUMNS = (
    "id INT PRIMARY KEY, year SMALLINT, month TINYINT, day TINYINT, dep_time INT,"
    " sched_dep_time INT, dep_delay DOUBLE, arr_time INT, sched_arr_time INT, arr_delay DOUBLE,"
    " carrier VARCHAR(5), flight INT, tailnum VARCHAR(10), origin VARCHAR(5), dest VARCHAR(5),"
    " air_time DOUBLE, distance DOUBLE, hour TINYINT, minute TINYINT, time_hour DATETIME"
)
VALUES = (
    "seq, 2013, 1, seq % 28 + 1, 517, 515, seq % 60, 830, 819, 11.0, 'UA', seq % 8000,"
    " CONCAT('N', seq % 5000), 'EWR', 'IAH', 227.0, 1400.0, 5, 15, '2013-01-01 05:00:00'"
)
SERVERS: dict[str, type[MariaDB] | type[MySQL]] = {"MariaDB": MariaDB, "MySQL": MySQL}
PROBES = 300
STATEMENT_ROWS = 1000
"""As many as a recursive query makes where nothing else was set."""


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=200_000, help="Rows of the table.")
@click.option("--transactions", default=20_000, help="Transactions of one row each.")
@click.option("--server", default="MariaDB", type=click.Choice([*SERVERS]), help="The source.")
def main(rows: int, transactions: int, server: str) -> None:
    """Measure the source and print a Markdown table with the bars."""
    click.echo(format_circumstances(circumstances("mysql_source")))
    cache_dir = default_cache_dir(os.environ, sys.platform)
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where:
        folder = Path(where)
        with (
            SERVERS[server](folder / "server", cache_dir, options=QUICK) as running,
            (folder / "log").open("wb") as log,
            Up(folder / "data", options=["--port", "0"], output=log) as up,
        ):
            ready = up.start()
            running.execute("CREATE DATABASE shop", f"CREATE TABLE shop.flights ({COLUMNS})")
            _insert(running, 1, rows)
            used = partial(cpu_of, up.pid)
            tune_collector()
            results = uvloop.run(_measure(running, ready, used, rows, transactions))
    click.echo(as_markdown(results))


async def _measure(
    server: SqlServer, ready: Ready, used: Callable[[], Cpu], rows: int, transactions: int
) -> list[Result]:
    nowhere = _Counted(None, used)
    results = await _rates(server, nowhere, rows, transactions, "alone")
    async with (
        Endpoint(**ready._asdict()) as endpoint,
        TableTarget(endpoint, "bench") as target,
    ):
        counted = _Counted(target, used)
        results += await _rates(server, counted, rows, transactions, "into rowtide")
        async with _running(server, counted):
            results += await _delays(server, endpoint)
    return results


async def _rates(
    server: SqlServer, target: _Counted, rows: int, transactions: int, how: str
) -> list[Result]:
    """Return how fast the table is copied, and changes that wait in the binlog are followed."""
    results = [await _time_source(server, target, rows, f"{type(server).__name__} snapshot, {how}")]
    await asyncio.to_thread(server.execute, "UPDATE shop.flights SET dep_delay = dep_delay + 1")
    results.append(await _time_source(server, target, rows, f"binlog, one statement, {how}"))
    await asyncio.to_thread(_small_transactions, server, transactions)
    name = f"binlog, single rows, {how}"
    return [*results, await _time_source(server, target, transactions, name)]


async def _time_source(server: SqlServer, target: _Counted, count: int, name: str) -> Result:
    """Run a source until so many rows were written; what it began with counts too."""
    target.expect(count)
    began_s, began_cpu_s, before = time.perf_counter(), time.process_time(), target.used()
    async with _running(server, target):
        await target.reached.wait()
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    after = target.used()
    worker_us, broker_us = ((b - a) / count * 1e6 for a, b in zip(before, after, strict=True))
    remark = f"source; worker {worker_us:.0f} us, broker {broker_us:.0f} us"
    return Result(name, count / took_s, "/s", cpu_us=cpu_s / count * 1e6, remark=remark)


async def _delays(server: SqlServer, endpoint: Endpoint) -> list[Result]:
    """Return how long after its commit at the server a change is read from rowtide."""
    delays: list[float] = []
    key = plainbuffer.HEADER + plainbuffer.encode_row([(b"id", variant.encode(7))], [])
    asked = pb.GetRowRequest(
        table_name="flights", primary_key=key, columns_to_get=["dep_delay"], max_versions=1
    )
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(PROBES):
            value = 1e6 + number
            change = f"UPDATE shop.flights SET dep_delay = {value} WHERE id = 7"
            await asyncio.to_thread(cursor.execute, change)
            began_s = time.perf_counter()
            while await _read(endpoint, asked) != value:
                pass
            delays.append(time.perf_counter() - began_s)
    return [
        Result(
            f"{type(server).__name__} -> read in rowtide, p{p}", percentile(delays, p) * 1000, "ms"
        )
        for p in (50, 99)
    ]


async def _read(endpoint: Endpoint, asked: pb.GetRowRequest) -> object:
    try:
        answer = await endpoint.call("GetRow", asked, pb.GetRowResponse)
    except Unavailable:  # A machine so busy that the lease was not renewed in time.
        return None
    [cell] = plainbuffer.decode_row(answer.row).cells
    return variant.decode(cell.variant)


@asynccontextmanager
async def _running(server: SqlServer, target: SourceTarget) -> AsyncIterator[None]:
    fields = {"host": HOST, "port": server.port, "user": "root", "tables": ["shop.*"]}
    source = make_source(Fields(fields, "bench"), ConnectorContext("bench", ""))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(source.run(target), name="source")
        yield
        source.stop()


class _Counted:
    """A target that counts rows, and gives them to another one if there is one.

    ``used`` tells what the processes of the store have used.
    """

    def __init__(self, target: TableTarget | None, used: Callable[[], Cpu]) -> None:
        self.used = used
        self.reached = asyncio.Event()
        self._left = 0
        self._target = target
        self._kept = b""

    def expect(self, rows: int) -> None:
        """Set ``reached`` when so many more rows were written."""
        self._left = rows
        self.reached.clear()

    async def ensure_table(self, table: TableShape) -> None:
        if self._target is not None:
            await self._target.ensure_table(table)

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        return rows if self._target is None else self._target.prepare(rows)

    async def write(self, rows: Sequence[SourceRow]) -> None:
        if self._target is not None:
            await self._target.write(rows)
        self._left -= len(rows)
        if self._left <= 0:
            self.reached.set()

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        return () if self._target is None else await self._target.keys(table, after, limit=limit)

    async def checkpoint(self) -> bytes:
        return self._kept

    async def keep(self, checkpoint: bytes) -> None:
        self._kept = checkpoint
        if self._target is not None:
            await self._target.keep(checkpoint)


def _insert(server: SqlServer, low: int, high: int) -> None:
    for first in range(low, high + 1, STATEMENT_ROWS):
        last = min(first + STATEMENT_ROWS - 1, high)
        more = f"SELECT seq + 1 FROM numbers WHERE seq < {last}"
        numbers = f"WITH RECURSIVE numbers (seq) AS (SELECT {first} UNION ALL {more})"
        server.execute(f"INSERT INTO shop.flights {numbers} SELECT {VALUES} FROM numbers")


def _small_transactions(server: SqlServer, count: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(1, count + 1):
            cursor.execute(f"UPDATE shop.flights SET arr_time = arr_time + 1 WHERE id = {number}")


if __name__ == "__main__":
    main()
