"""A PostgreSQL source that runs beside a test, and when it is where its server is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import psycopg2

from demo.servers.postgres import HOST, PostgreSQL
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.sources.postgres.position import parse_lsn
from rowtide.connectors.sources.postgres.source import PostgresSource, make_source
from rowtide.connectors.sources.source import TableReporting, TableState
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.running_source import LOOK_S, WAIT_S, RunningSource, beside
from tests.support.waiting import until_async

__all__ = [
    "Running",
    "following",
    "plain",
    "read_keyed_rows",
    "source_of",
    "wait_until_unread",
]

ACTIVE = "SELECT 1 FROM pg_replication_slots WHERE active"


def source_of(server: PostgreSQL, **settings: Any) -> PostgresSource:
    """Return a source of all tables of the schema ``shop``."""
    given = {
        "host": HOST,
        "port": server.port,
        "user": "postgres",
        "database": server.database,
        "tables": ["shop.*"],
        **settings,
    }
    return make_source(Fields(given, "source"), ConnectorContext("shop", ""))


class Running(RunningSource):
    """A source of ``server`` that runs beside a test."""

    def __init__(self, server: PostgreSQL, target: MemoryTarget, **settings: Any) -> None:
        super().__init__(lambda: source_of(server, **settings), target)
        self.server = server
        self._run_before = self.read_checkpoint()["run"]

    async def wait_until_alone(self) -> None:
        await wait_until_unread(self.server)

    async def settle(self) -> None:
        """Wait until every table is copied, and all that the server has done by now is there."""
        mark = "SELECT pg_logical_emit_message(true, 'test', '')"
        [(text,)] = await asyncio.to_thread(self.server.rows, mark)
        lsn = parse_lsn(text)
        await self.until(
            lambda: self.is_copied() and self.lsn() > lsn, f"all is there up to {text}"
        )

    def is_copied(self) -> bool:
        """True if the checkpoint says that all tables are copied."""
        tables = self.read_checkpoint()["tables"].values()
        return (
            self.read_checkpoint()["run"] > self._run_before
            and bool(tables)
            and all(table["copied"] and not table["sweep"] for table in tables)
        )

    def states(self) -> dict[str, TableState]:
        """Return the states of tables by full name."""
        assert isinstance(self._source, TableReporting), "it can tell"
        return {state.table: state for state in self._source.table_states()}

    async def wait_until_failed(self, table: str, why: str) -> TableState:
        """Wait until a table is reported as failed, for a reason that has these words."""

        def has_failed() -> bool:
            state = self.states().get(table)
            return state is not None and state.state == "failed" and why in state.reason

        await self.until(has_failed, f"{table} failed: {why}")
        return self.states()[table]

    async def wait_until_equal(self, target: str, query: str) -> None:
        """Wait until rowtide's table is what a query gives, and is followed."""
        await self.until(
            lambda: (
                plain(self.target.rows.get(target, {})) == read_keyed_rows(self.server, query)
                and any(
                    state.target == target and state.state == "following"
                    for state in self.states().values()
                )
            ),
            f"{target} is {query}",
        )

    def lsn(self) -> int:
        """Return where the checkpoint is."""
        return parse_lsn(self.read_checkpoint()["lsn"])

    def read_checkpoint(self) -> Mapping[str, Any]:
        """Return the checkpoint."""
        found: Mapping[str, Any] = json.loads(
            self.target.kept or b'{"tables": {}, "lsn": "0/0", "run": 0}'
        )
        return found


async def wait_until_unread(server: PostgreSQL) -> None:
    """Wait until the server has noticed that no process reads a slot any more.

    A slot is active for a moment after its reader's end. Who reads it then is refused.
    """
    await until_async(
        lambda: asyncio.to_thread(_is_unread, server),
        "no slot is read",
        s_max=WAIT_S,
        poll_s=LOOK_S,
    )


def _is_unread(server: PostgreSQL) -> bool:
    try:
        return not server.rows(ACTIVE)
    except psycopg2.OperationalError:
        return True  # The server is away, and its readers with it.


def read_keyed_rows(server: PostgreSQL, query: str) -> dict[object, dict[str, object]]:
    """Return rows, the first column as the key, without those that are NULL."""
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            names = [column.name for column in cursor.description]
            return {
                row[0]: {n: v for n, v in zip(names[1:], row[1:], strict=True) if v is not None}
                for row in cursor.fetchall()
            }
    finally:
        connection.close()


def following(
    server: PostgreSQL, target: MemoryTarget, **settings: Any
) -> AbstractAsyncContextManager[Running]:
    """Run a source in the background; stopped at the end."""
    return beside(Running(server, target, **settings))


def plain(rows: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return rows with keys as plain values, one alone without a tuple."""
    keys = {key: tuple(value for _, value in key) for key in rows}
    return {keys[key][0] if len(key) == 1 else keys[key]: rows[key] for key in rows}
