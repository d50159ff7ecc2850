"""A server of each kind, with tables of two integers, as the contract of sources changes them."""

from __future__ import annotations

import json
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from demo.servers.postgres import PostgreSQL
from demo.servers.sql_server import SqlServer
from rowtide.connectors.sources.source import Repeatable, Source
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source import following as mysql_following
from tests.connectors.postgres import following as postgres_following
from tests.connectors.running_source import RunningSource
from tests.connectors.source_contract.memory_source import Change, MemoryServer, MemorySource

__all__ = [
    "MemoryWorld",
    "MySqlWorld",
    "PostgresWorld",
    "RandomWriter",
    "SettledSource",
    "SourceWorld",
]

CHUNK_ROWS = 40


class SettledSource(Protocol):
    """A running source that knows when everything is there."""

    async def settle(self) -> None:
        """Wait until every table is copied, and all that the server has done by now is there."""
        ...


class SourceWorld(ABC):
    """A server, and the source that follows its tables. Tables have an ``id`` and a ``v``."""

    @abstractmethod
    def make_table(self, name: str, rows: Mapping[int, int]) -> None:
        """Make a table with rows."""

    @abstractmethod
    def commit(self, *changes: Change) -> None:
        """Change rows in one transaction."""

    @abstractmethod
    def rows(self, table: str) -> dict[int, int]:
        """Return the rows of a table."""

    @abstractmethod
    def source(self) -> Source:
        """Return a new source."""

    @abstractmethod
    def running(self, target: MemoryTarget) -> Any:
        """Return a ``RunningSource`` that is a ``SettledSource``, to be run beside a test."""

    def begin_again(self, target: MemoryTarget, *tables: str) -> None:
        """Have the next life copy tables again."""
        source = self.source()
        assert isinstance(source, Repeatable), "it can be made to"
        target.kept = source.begin_again(target.kept, tables)


class MemoryWorld(SourceWorld):
    """The source of the engine's own tests."""

    def __init__(self) -> None:
        self.server = MemoryServer()

    def make_table(self, name: str, rows: Mapping[int, int]) -> None:
        self.server.tables[name] = {}
        self.commit(*((name, key, value) for key, value in rows.items()))

    def commit(self, *changes: Change) -> None:
        self.server.commit(*changes)

    def rows(self, table: str) -> dict[int, int]:
        return dict(self.server.tables[table])

    def source(self) -> MemorySource:
        return MemorySource(self.server, chunk_rows=CHUNK_ROWS)

    def running(self, target: MemoryTarget) -> RunningMemorySource:
        return RunningMemorySource(self, target)


class RunningMemorySource(RunningSource):
    """A source of the server in memory that runs beside a test."""

    def __init__(self, world: MemoryWorld, target: MemoryTarget) -> None:
        super().__init__(world.source, target)
        self._server = world.server

    async def settle(self) -> None:
        number = len(self._server.log)
        await self.until(lambda: self._is_there(number), f"all is there up to {number}")

    def _is_there(self, number: int) -> bool:
        if not self.target.kept:
            return False
        kept = json.loads(self.target.kept)
        tables = kept["tables"].values()
        is_copied = all(table["copied"] and not table["sweep"] for table in tables)
        return is_copied and int(kept["number"]) >= number


S = TypeVar("S", SqlServer, PostgreSQL)


class _SqlWorld(SourceWorld, Generic[S]):
    """A server that is changed with SQL, in the schema or database ``shop``."""

    put: str

    def __init__(self, server: S) -> None:
        self.server: S = server

    def make_table(self, name: str, rows: Mapping[int, int]) -> None:
        values = ", ".join(f"({key}, {value})" for key, value in rows.items())
        self.server.execute(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v BIGINT)")
        if rows:
            self.server.execute(f"INSERT INTO shop.{name} VALUES {values}")

    def commit(self, *changes: Change) -> None:
        connection = self.server.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                for table, key, value in changes:
                    cursor.execute(self._statement(table, key, value))
                cursor.execute("COMMIT")
        finally:
            connection.close()

    def _statement(self, table: str, key: int, value: int | None) -> str:
        if value is None:
            return f"DELETE FROM shop.{table} WHERE id = {key}"
        return self.put.format(table=table, key=key, value=value)

    def rows(self, table: str) -> dict[int, int]:
        return dict(self.server.rows(f"SELECT id, v FROM shop.{table}"))


class MySqlWorld(_SqlWorld[SqlServer]):
    """MariaDB or MySQL."""

    put = "REPLACE INTO shop.{table} VALUES ({key}, {value})"

    def source(self) -> Source:
        return mysql_following.source_of(self.server, chunk_rows=CHUNK_ROWS)

    def running(self, target: MemoryTarget) -> mysql_following.Running:
        return mysql_following.Running(self.server, target, chunk_rows=CHUNK_ROWS)


class PostgresWorld(_SqlWorld[PostgreSQL]):
    """PostgreSQL."""

    put = (
        "INSERT INTO shop.{table} VALUES ({key}, {value}) "
        "ON CONFLICT (id) DO UPDATE SET v = excluded.v"
    )

    def source(self) -> Source:
        return postgres_following.source_of(self.server, chunk_rows=CHUNK_ROWS)

    def running(self, target: MemoryTarget) -> postgres_following.Running:
        return postgres_following.Running(self.server, target, chunk_rows=CHUNK_ROWS)


class RandomWriter:
    """Changes rows of some tables in a thread, from a seed, in a number of transactions.

    Values rise over all changes, so they show the order of commits per key.
    """

    def __init__(
        self, world: SourceWorld, tables: Sequence[str], *, seed: int, keys: int, transactions: int
    ) -> None:
        self._world = world
        self._tables = tables
        self._chance = random.Random(seed)
        self._keys = keys
        self._left = transactions
        self._value = 0
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="random writer", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def finish(self) -> None:
        """End now. Raises what ended it before."""
        self._left = 0
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while self._left > 0:
                self._left -= 1
                self._world.commit(*(self._change() for _ in range(self._chance.randint(1, 6))))
        except Exception as error:  # noqa: BLE001 - raised again by ``finish``
            self._failure = error

    def _change(self) -> Change:
        self._value += 1
        table, key = self._chance.choice(self._tables), self._chance.randrange(self._keys)
        return table, key, None if self._chance.random() < 0.25 else self._value
