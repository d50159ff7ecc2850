"""Sinks into a real server by their settings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from demo.servers.sql_server import HOST, SqlServer
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.mysql.sink import MysqlSink

__all__ = ["mysql_sink", "open_sink"]


def mysql_sink(server: SqlServer, database: str, **settings: object) -> MysqlSink:
    """Return a sink by its settings, as the runtime does."""
    where = {"host": HOST, "port": server.port, "user": "root", "database": database}
    fields = Fields({"kind": "mysql", **where, **settings}, "test")
    sink = make_sink(fields, ConnectorContext("test", ""))
    assert isinstance(sink, MysqlSink)
    return sink


@asynccontextmanager
async def open_sink(
    server: SqlServer, database: str, table: TableShape, **settings: object
) -> AsyncIterator[MysqlSink]:
    """Give an open sink."""
    sink = mysql_sink(server, database, **settings)
    try:
        await sink.open(table)
        yield sink
    finally:
        await sink.close()
