"""A source that runs beside a test, as the runtime would run it, and what to wait for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from demo.servers.postgres import HOST, PostgreSQL
from rowtide.connectors.fields import Fields
from rowtide.connectors.postgres.position import parsed_lsn
from rowtide.connectors.postgres.source import PostgresSource, make_source
from rowtide.connectors.registry import Surroundings
from rowtide.core.errors import Unavailable
from tests.connectors.postgres.memory_target import Crash, MemoryTarget

__all__ = ["WAIT_S", "Running", "following", "plain", "source_of"]

WAIT_S = 60.0
AGAIN_S = 0.05


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
    return make_source(Fields(given, "source"), Surroundings("shop", ""))


class Running:
    """A source that is run again whenever it ends by what a crash or an absent server does."""

    def __init__(self, server: PostgreSQL, target: MemoryTarget, **settings: Any) -> None:
        self.server = server
        self.target = target
        self.lives = 0
        self._run_before = self.kept()["run"]
        self._settings = settings
        self._source = source_of(server, **settings)
        self._stopping = False

    async def run(self) -> None:
        while not self._stopping:
            self.lives += 1
            self._source = source_of(self.server, **self._settings)
            try:
                await self._source.run(self.target)
            except (Crash, Unavailable):
                await asyncio.sleep(AGAIN_S)

    def stop(self) -> None:
        self._stopping = True
        self._source.stop()

    async def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        deadline_s = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline_s, f"not in {WAIT_S:.0f} s: {what}"
            await asyncio.sleep(0.01)

    async def settle(self) -> None:
        """Wait until every table is copied, and all that the server has done by now is there."""
        mark = "SELECT pg_logical_emit_message(true, 'test', '')"
        [(text,)] = await asyncio.to_thread(self.server.rows, mark)
        lsn = parsed_lsn(text)
        await self.until(
            lambda: self.is_copied() and self.lsn() > lsn, f"all is there up to {text}"
        )

    def is_copied(self) -> bool:
        """Say whether all tables are, as the checkpoint has it."""
        tables = self.kept()["tables"].values()
        return (
            self.kept()["run"] > self._run_before
            and bool(tables)
            and all(table["copied"] and not table["sweep"] for table in tables)
        )

    def lsn(self) -> int:
        """Return where the checkpoint is."""
        return parsed_lsn(self.kept()["lsn"])

    def kept(self) -> Mapping[str, Any]:
        """Return the checkpoint."""
        found: Mapping[str, Any] = json.loads(
            self.target.kept or b'{"tables": {}, "lsn": "0/0", "run": 0}'
        )
        return found


@asynccontextmanager
async def following(
    server: PostgreSQL, target: MemoryTarget, **settings: Any
) -> AsyncIterator[Running]:
    """Run a source in the background; stopped at the end."""
    running = Running(server, target, **settings)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(running.run(), name="source")
        try:
            yield running
        except BaseException:
            task.cancel()
            raise
        running.stop()


def plain(rows: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return rows with keys as plain values, one alone without a tuple."""
    keys = {key: tuple(value for _, value in key) for key in rows}
    return {keys[key][0] if len(key) == 1 else keys[key]: rows[key] for key in rows}
