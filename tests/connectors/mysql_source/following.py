"""A source that runs beside a test, as the runtime would run it, and what to wait for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from demo.servers.mariadb import MariaDB
from rowtide.connectors.fields import Fields
from rowtide.connectors.mysql.source import MySqlSource, make_source
from rowtide.connectors.registry import Surroundings
from rowtide.connectors.rows import Key
from rowtide.core.errors import OutcomeUnknown, Unavailable
from tests.connectors.mysql_source.memory_target import Crash, MemoryTarget

__all__ = ["Running", "following", "plain", "source_of"]

WAIT_S = 60.0
AGAIN_S = 0.05


def source_of(server: MariaDB, **settings: Any) -> MySqlSource:
    """Return a source of the database ``shop``."""
    given = {
        "host": "127.0.0.1",
        "port": server.port,
        "user": "root",
        "tables": ["shop.*"],
        **settings,
    }
    return make_source(Fields(given, "source"), Surroundings("shop", ""))


class Running:
    """A source that is run again whenever it ends by what a crash or an absent server does."""

    def __init__(self, server: MariaDB, target: MemoryTarget, **settings: Any) -> None:
        self.server = server
        self.target = target
        self.lives = 0
        self._settings = settings
        self._source = source_of(server, **settings)
        self._stopping = False

    async def run(self) -> None:
        while not self._stopping:
            self.lives += 1
            self._source = source_of(self.server, **self._settings)
            try:
                await self._source.run(self.target)
            except (Crash, Unavailable, OutcomeUnknown):
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
        [(gtids,)] = await asyncio.to_thread(self.server.rows, "SELECT @@gtid_binlog_pos")
        await self.until(
            lambda: self._is_copied() and self._has(str(gtids)), f"all up to {gtids} is there"
        )

    def _is_copied(self) -> bool:
        tables = self._kept()["tables"].values()
        return all(table["copied"] and not table["sweep"] for table in tables)

    def _has(self, gtids: str) -> bool:
        kept = dict(gtid.split("-", 1) for gtid in self._kept()["gtids"].split(",") if gtid)
        wanted = dict(gtid.split("-", 1) for gtid in gtids.split(",") if gtid)
        return all(_sequence(kept.get(d, "0")) >= _sequence(g) for d, g in wanted.items())

    def _kept(self) -> Any:
        return json.loads(self.target.kept or b'{"tables": {"": {"copied": false}}, "gtids": ""}')


def _sequence(gtid: str) -> int:
    return int(gtid.rsplit("-")[-1])


@asynccontextmanager
async def following(
    server: MariaDB, target: MemoryTarget, **settings: Any
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


def plain(rows: dict[Key, Any]) -> dict[tuple[Any, ...], Any]:
    """Return rows with keys as plain values."""
    return {tuple(value for _, value in key): columns for key, columns in rows.items()}
