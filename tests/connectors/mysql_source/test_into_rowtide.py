"""From a real MariaDB into a real rowtide; ``verify`` is the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.mysql.gtids import parse_gtids
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint
from rowtide.connectors.sources.mysql.source import MySqlSource
from tests.connectors.mysql_source.following import source_of
from tests.connectors.mysql_source.shop_writer import ShopWriter, make_shop
from tests.connectors.running_source import compare, into_rowtide, wait_for_checkpoint

pytestmark = pytest.mark.system

ROWS = 400


async def test_tables_are_the_same_whatever_ends_the_source(
    endpoint: Endpoint, sql_server: SqlServer
) -> None:
    make_shop(sql_server, ROWS)
    writer = ShopWriter(sql_server, seed=5, rows=ROWS, changes=900)
    try:
        for _ in range(3):
            async with _running(endpoint, sql_server) as (_, target):
                await _until(target, _has_copied)
        async with _running(endpoint, sql_server) as (source, target):
            await asyncio.to_thread(writer.wait)
            await _wait_until_all_is_there(sql_server, target)
            source.stop()
        sql_server.execute("TRUNCATE shop.names", "INSERT INTO shop.names VALUES ('fox', 1, 1)")
        async with _running(endpoint, sql_server) as (source, target):
            await _wait_until_all_is_there(sql_server, target)
            source.stop()
    finally:
        writer.finish()
    for table, least in (("numbers", 2), ("names", 1)):
        await compare(endpoint, source_of(sql_server), table, least=least)


def _running(
    endpoint: Endpoint, server: SqlServer
) -> AbstractAsyncContextManager[tuple[MySqlSource, TableTarget]]:
    return into_rowtide(endpoint, "shop", source_of(server, chunk_rows=50))


async def _until(target: TableTarget, true: Callable[[MySqlCheckpoint], bool]) -> None:
    """Wait until this source has kept something of which that is true."""
    before = await target.checkpoint()
    await wait_for_checkpoint(
        target, lambda kept: kept != before and true(MySqlCheckpoint.parse(kept))
    )


def _has_copied(kept: MySqlCheckpoint) -> bool:
    return any(table.cursor or table.copied for table in kept.tables.values())


async def _wait_until_all_is_there(server: SqlServer, target: TableTarget) -> None:
    wanted = parse_gtids(server.gtids())

    def all_is_there(kept: MySqlCheckpoint) -> bool:
        done = all(table.copied and not table.sweep for table in kept.tables.values())
        return done and kept.gtids == wanted

    await _until(target, all_is_there)
