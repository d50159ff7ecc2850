"""From a real PostgreSQL into a real rowtide; ``verify`` is the judge."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg2
import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.postgres.position import PostgresCheckpoint, parse_lsn
from rowtide.connectors.sources.postgres.source import PostgresSource
from tests.connectors.postgres.following import source_of, wait_until_unread
from tests.connectors.running_source import compare, into_rowtide, wait_for_checkpoint

pytestmark = pytest.mark.system

ROWS = 400


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
    await compare_both(endpoint, postgres)
    postgres.execute("TRUNCATE shop.titles", "INSERT INTO shop.titles VALUES ('fox', 1, 'z')")
    async with running(endpoint, postgres) as (source, target):
        await come_to(target, mark(postgres))
        source.stop()
    await compare_both(endpoint, postgres)
    postgres.drop_slots()
    postgres.execute("DELETE FROM shop.figures WHERE id % 2 = 0")
    async with running(endpoint, postgres) as (source, target):
        await come_to(target, mark(postgres), epoch=2)
        source.stop()
    await compare_both(endpoint, postgres)


async def compare_both(endpoint: Endpoint, server: PostgreSQL) -> None:
    for table in ("figures", "titles"):
        await compare(endpoint, source_of(server, chunk_rows=50), table, least=1)


@asynccontextmanager
async def running(
    endpoint: Endpoint, server: PostgreSQL
) -> AsyncIterator[tuple[PostgresSource, TableTarget]]:
    await wait_until_unread(server)
    async with into_rowtide(endpoint, "postgres", source_of(server, chunk_rows=50)) as found:
        yield found


def mark(server: PostgreSQL) -> int:
    [(lsn,)] = server.rows("SELECT pg_logical_emit_message(true, 'test', '')")
    return parse_lsn(lsn)


async def come_to(target: TableTarget, lsn: int, *, epoch: int = 1) -> None:
    """Wait until what is kept has come so far, or with 0 until more than before is copied."""
    before = PostgresCheckpoint.parse(await target.checkpoint())

    def is_there(checkpoint: bytes) -> bool:
        kept = PostgresCheckpoint.parse(checkpoint)
        tables = kept.tables.values()
        if not lsn:
            # A source that only begins keeps its number.
            has_moved = (kept.lsn, kept.tables) != (before.lsn, before.tables)
            return has_moved and any(table.cursor or table.copied for table in tables)
        whole = all(table.copied and not table.sweep for table in tables)
        return whole and kept.epoch >= epoch and kept.lsn > lsn

    await wait_for_checkpoint(target, is_there)
