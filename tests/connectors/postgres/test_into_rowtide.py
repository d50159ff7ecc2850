"""From a real PostgreSQL into a real rowtide; ``verify`` is the judge."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg2
import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.postgres.position import parsed_lsn
from rowtide.connectors.postgres.source import PostgresSource
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.verify.scan import compare_scans
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.deploy.up import Ready
from rowtide.stream.change_api import ApiSource
from rowtide.stream.endpoint import Endpoint
from tests.connectors.postgres.following import source_of

pytestmark = pytest.mark.system

ROWS = 400


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What the target asks."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked


CHANGES = (
    "UPDATE shop.figures SET n = n + 1 WHERE id % 7 = {0} % 7",
    "UPDATE shop.figures SET id = id + 1000 WHERE id = {0}",
    "DELETE FROM shop.figures WHERE id = {0} + 1",
    "INSERT INTO shop.titles VALUES ('n{0}', {0}, repeat('x', 3000)) ON CONFLICT DO NOTHING",
    "UPDATE shop.titles SET n = {0} WHERE n % 5 = {0} % 5",
)


def change(server: PostgreSQL, until: threading.Event) -> None:
    """Change rows, statement after statement."""
    number = 0
    while not until.is_set():
        number += 1
        with suppress(psycopg2.errors.UniqueViolation):
            server.execute(CHANGES[number % len(CHANGES)].format(number % ROWS))


async def test_tables_are_the_same_whatever_ends_the_source(
    endpoint: Endpoint, postgres: PostgreSQL
) -> None:
    postgres.execute(
        "CREATE TABLE shop.figures (id int PRIMARY KEY, n int, s text, b bytea, f float8)",
        f"INSERT INTO shop.figures SELECT i, i, 's' || i, '\\x00ff', i / 3.0"
        f" FROM generate_series(1, {ROWS}) i",
        "CREATE TABLE shop.titles (name text, n int, large text, PRIMARY KEY (name, n))",
        f"INSERT INTO shop.titles SELECT 'n' || i, i, repeat('y', 9000)"
        f" FROM generate_series(1, {ROWS}) i",
    )
    until = threading.Event()
    writing = threading.Thread(target=change, args=(postgres, until))
    writing.start()
    try:
        for _ in range(3):
            async with running(endpoint, postgres) as (_, target):
                await come_to(target, 0)
    finally:
        until.set()
        writing.join()
    async with running(endpoint, postgres) as (source, target):
        await come_to(target, mark(postgres))
        source.stop()
    await compare(endpoint, postgres)
    postgres.execute("TRUNCATE shop.titles", "INSERT INTO shop.titles VALUES ('fox', 1, 'z')")
    async with running(endpoint, postgres) as (source, target):
        await come_to(target, mark(postgres))
        source.stop()
    await compare(endpoint, postgres)
    postgres.drop_slots()
    postgres.execute("DELETE FROM shop.figures WHERE id % 2 = 0")
    async with running(endpoint, postgres) as (source, target):
        await come_to(target, mark(postgres), epoch=2)
        source.stop()
    await compare(endpoint, postgres)


async def compare(endpoint: Endpoint, server: PostgreSQL) -> None:
    """Compare the tables on both ends."""
    for table in ("figures", "titles"):
        side = await source_of(server, chunk_rows=50).side(table)
        try:
            verdict = await compare_scans(side, TableSide(ApiSource(endpoint, table)))
        finally:
            await side.close()
        assert verdict.differences == []
        assert verdict.rows > 0


@asynccontextmanager
async def running(
    endpoint: Endpoint, server: PostgreSQL
) -> AsyncIterator[tuple[PostgresSource, TableTarget]]:
    """Run a source; where it was not stopped it is cancelled in the middle of what it does."""
    source = source_of(server, chunk_rows=50)
    async with (
        TableTarget(endpoint, "postgres", lease_s=2.0) as target,
        asyncio.TaskGroup() as tasks,
    ):
        task = tasks.create_task(source.run(target), name="source")
        yield source, target
        if not source.stopping:
            task.cancel()


def mark(server: PostgreSQL) -> int:
    [(lsn,)] = server.rows("SELECT pg_logical_emit_message(true, 'test', '')")
    return parsed_lsn(lsn)


async def come_to(target: TableTarget, lsn: int, *, epoch: int = 1) -> None:
    """Wait until what is kept has come so far, or with 0 until anything is copied."""
    async with asyncio.timeout(120):
        while True:
            kept: Any = json.loads(await target.checkpoint() or b"null")
            tables = kept["tables"].values() if kept else []
            if not lsn and any(table["cursor"] or table["copied"] for table in tables):
                return
            if (
                kept
                and lsn
                and kept["epoch"] >= epoch
                and parsed_lsn(kept["lsn"]) > lsn
                and all(table["copied"] and not table["sweep"] for table in tables)
            ):
                return
            await asyncio.sleep(0.01)
