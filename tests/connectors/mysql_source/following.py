"""A MariaDB source that runs beside a test, and when it is where its server is."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from demo.servers.mariadb import MariaDB
from rowtide.connectors.fields import Fields
from rowtide.connectors.mysql.source import MySqlSource, make_source
from rowtide.connectors.registry import Surroundings
from rowtide.connectors.rows import Key
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.running_source import RunningSource, beside

__all__ = ["Running", "following", "plain", "source_of"]


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


class Running(RunningSource):
    """A source of ``server`` that runs beside a test."""

    def __init__(self, server: MariaDB, target: MemoryTarget, **settings: Any) -> None:
        super().__init__(lambda: source_of(server, **settings), target)
        self.server = server

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


def following(
    server: MariaDB, target: MemoryTarget, **settings: Any
) -> AbstractAsyncContextManager[Running]:
    """Run a source in the background; stopped at the end."""
    return beside(Running(server, target, **settings))


def plain(rows: dict[Key, Any]) -> dict[tuple[Any, ...], Any]:
    """Return rows with keys as plain values."""
    return {tuple(value for _, value in key): columns for key, columns in rows.items()}
