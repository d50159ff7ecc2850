"""A source that runs beside a test, and when it is where its server is."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from demo.servers.sql_server import SqlServer
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Key
from rowtide.connectors.sources.mysql.gtids import parse_gtids
from rowtide.connectors.sources.mysql.source import MySqlSource, make_source
from rowtide.connectors.sources.source import TableReporting, TableState
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.running_source import RunningSource, beside

__all__ = ["Running", "following", "log_statements", "plain", "source_of"]


def source_of(server: SqlServer, *, folder: str = "", **settings: Any) -> MySqlSource:
    """Return a source of the database ``shop``; ``folder`` is the connector's own."""
    given = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "root",
        "tables": ["shop.*"],
        **settings,
    }
    return make_source(Fields(given, "source"), ConnectorContext("shop", folder))


class Running(RunningSource):
    """A source of ``server`` that runs beside a test."""

    def __init__(self, server: SqlServer, target: MemoryTarget, **settings: Any) -> None:
        super().__init__(lambda: source_of(server, **settings), target)
        self.server = server

    def state(self, table: str) -> TableState | None:
        """Return the state of a table, None if it is unknown."""
        assert isinstance(self._source, TableReporting), "it can tell"
        found = {state.table: state for state in self._source.table_states()}
        return found.get(table)

    async def wait_until_state(self, table: str, state: str) -> TableState:
        """Wait until a table has this state. Return it."""
        await self.until(
            lambda: (now := self.state(table)) is not None and now.state == state,
            f"{table} is {state}",
        )
        found = self.state(table)
        assert found is not None
        return found

    async def settle(self) -> None:
        """Wait until every table is copied, and all that the server has done by now is there."""
        gtids = await asyncio.to_thread(self.server.gtids)
        await self.until(
            lambda: self._is_copied() and self._has(gtids), f"all up to {gtids} is there"
        )

    def _is_copied(self) -> bool:
        tables = self._read_checkpoint()["tables"].values()
        return all(table["copied"] and not table["sweep"] for table in tables)

    def _has(self, gtids: str) -> bool:
        kept = self._read_checkpoint()["gtids"]
        return not gtids or (bool(kept) and parse_gtids(kept).includes(parse_gtids(gtids)))

    def _read_checkpoint(self) -> Any:
        return json.loads(self.target.kept or b'{"tables": {"": {"copied": false}}, "gtids": ""}')


def following(
    server: SqlServer, target: MemoryTarget, **settings: Any
) -> AbstractAsyncContextManager[Running]:
    """Run a source in the background; stopped at the end."""
    return beside(Running(server, target, **settings))


def log_statements(server: SqlServer, *statements: str, log: str = "STATEMENT") -> None:
    """Run statements in ``shop`` in a session that logs them, not the rows that they change."""
    settings = {"database": "shop", "local_infile": True}
    with server.connect(**settings) as session, session.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_format = '{log}'")
        for statement in statements:
            cursor.execute(statement)


def plain(rows: dict[Key, Any]) -> dict[tuple[Any, ...], Any]:
    """Return rows with keys as plain values."""
    return {tuple(value for _, value in key): columns for key, columns in rows.items()}
