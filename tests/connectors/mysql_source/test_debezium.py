"""Debezium reads the same MariaDB: it and rowtide report the same changes and have the
same rows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymysql
import pytest

from demo.servers.sql_server import SqlServer
from rowtide.client.changes.api import ApiSource
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.core.records import change
from rowtide.deploy.up import Ready
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from tests.connectors.kafka import sinks
from tests.connectors.mysql_source import debezium
from tests.connectors.mysql_source.debezium import (
    COLUMNS,
    KEY,
    Change,
    Shown,
    key_bytes,
    show_values,
)
from tests.connectors.mysql_source.following import source_of

pytestmark = [pytest.mark.kafka, pytest.mark.system]

SEED = int(os.environ.get("ROWTIDE_HISTORY_SEED", str(random.SystemRandom().randrange(10**6))))
# Names that are equal to the server, and different keys elsewhere.
NAMES = ("fox", "FOX", "dög", "日本")
NUMBERS = range(12)
ROWS = 60
TRANSACTIONS = 200
ROLLED_BACK = 0.1
NULL = 0.15
WAIT_S = 120.0
POLL_S = 0.2

Changes = Sequence[tuple[bytes, Change]]


class Writer:
    """Makes a history of ``table`` from a seed, in transactions of several changes."""

    def __init__(self, server: SqlServer, table: str, seed: int) -> None:
        self._server = server
        self._table = table
        self._chance = random.Random(seed)

    def make_table(self) -> None:
        """Make the table, with rows."""
        columns = ", ".join(f"{name} {column.type}" for name, column in COLUMNS.items())
        keys = "number INT UNSIGNED, name VARCHAR(20)"
        made = f"CREATE TABLE {self._table} ({keys}, {columns}, PRIMARY KEY ({', '.join(KEY)}))"
        with self._server.connect(database="shop") as connection, connection.cursor() as cursor:
            cursor.execute(made)
            self._insert(cursor, ROWS, "REPLACE")

    def write(self, transactions: int) -> None:
        """Make so many transactions, some of which are rolled back."""
        with self._server.connect(autocommit=False, database="shop") as connection:
            for _ in range(transactions):
                with connection.cursor() as cursor:
                    for _ in range(self._chance.randint(1, 5)):
                        # Another row has the key: the statement does nothing.
                        with suppress(pymysql.err.IntegrityError):
                            self._change(cursor)
                if self._chance.random() < ROLLED_BACK:
                    connection.rollback()
                else:
                    connection.commit()

    def mark(self, number: int) -> bytes:
        """Insert a row that the history has nothing to do with; return its key."""
        values = (1000 + number, "mark")
        self._server.execute(f"INSERT INTO shop.{self._table} (number, name) VALUES {values}")
        return key_bytes(values)

    def _change(self, cursor: Any) -> None:
        kind = self._chance.random()
        number, name = self._key()
        update, where = f"UPDATE {self._table} SET", "WHERE number = %s AND name = %s"
        if kind < 0.2:
            self._insert(cursor, self._chance.randint(1, 3), "INSERT")
        elif kind < 0.3:
            self._insert(cursor, 1, "REPLACE")
        elif kind < 0.45:
            cursor.execute(f"DELETE FROM {self._table} {where}", (number, name))
        elif kind < 0.55:
            moved = f"{update} number = %s, name = %s {where}"
            cursor.execute(moved, (*self._key(), number, name))
        elif kind < 0.6:
            cursor.execute(f"{update} name = UPPER(name) WHERE number = %s", (number,))
        else:
            chosen = self._chance.sample([*COLUMNS], self._chance.randint(1, 6))
            values = self._values()
            text = ", ".join(f"{name} = %s" for name in chosen)
            where = where if kind < 0.9 else "WHERE number = %s OR name = %s"
            given = [values[name] for name in chosen]
            cursor.execute(f"{update} {text} {where}", (*given, number, name))

    def _insert(self, cursor: Any, rows: int, verb: str) -> None:
        names = [*KEY, *COLUMNS]
        row = f"({', '.join(['%s'] * len(names))})"
        values = [value for _ in range(rows) for value in (*self._key(), *self._values().values())]
        into = f"{verb} INTO {self._table} ({', '.join(names)})"
        cursor.execute(f"{into} VALUES {', '.join([row] * rows)}", values)

    def _key(self) -> tuple[int, str]:
        return self._chance.choice(NUMBERS), self._chance.choice(NAMES)

    def _values(self) -> dict[str, Any]:
        return {
            name: None if self._chance.random() < NULL else column.make(self._chance)
            for name, column in COLUMNS.items()
        }


async def test_debezium_and_rowtide_tell_the_same_changes_and_rows(
    broker: str, server: Ready, mariadb: SqlServer, cache_dir: Path, tmp_path: Path
) -> None:
    table = f"things_{uuid4().hex}"
    writer = Writer(mariadb, table, SEED)
    writer.make_table()
    topic = debezium.topic_of(table)
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        await cluster.create_topic(topic, partitions=1, replicas=1, settings={})
    folder = tmp_path / "connect"
    judge = debezium.connect_to(mariadb, folder, cache_dir, bootstrap=broker, table=table)

    async def by_debezium() -> Changes:
        assert judge.trace() == ""
        return debezium.changes_of(await sinks.read_records(broker, topic))

    async with Endpoint(**server._asdict()) as endpoint:
        source = ApiSource(endpoint, table)
        with judge:
            async with _following(endpoint, mariadb, table) as is_copied:
                await asyncio.to_thread(writer.write, TRANSACTIONS)  # While both of them copy.
                await _until(is_copied)
                first = writer.mark(1)
                await _wait_until_marked(first, source, by_debezium)
                await asyncio.to_thread(writer.write, TRANSACTIONS)
                last = writer.mark(2)
                await _wait_until_marked(last, source, by_debezium)
            theirs = await by_debezium()
        ours = await _stream(source)
        side = TableSide(source)
        rows = {encoded: show_values(columns) async for encoded, columns in side.rows()}
    seed = f"ROWTIDE_HISTORY_SEED={SEED}"
    keys = mariadb.rows(f"SELECT number, name FROM shop.{table}")
    judged = debezium.state_of(theirs)
    assert rows.keys() == judged.keys() == {key_bytes(values) for values in keys}, seed
    assert _differences(rows, judged) == [], seed
    assert rows == debezium.state_of(ours), seed
    changes = _by_key(first, ours)
    assert sum(map(len, changes.values())) > TRANSACTIONS
    assert changes == _by_key(first, theirs), seed


@asynccontextmanager
async def _following(
    endpoint: Endpoint, server: SqlServer, table: str
) -> AsyncIterator[Callable[[], Awaitable[bool]]]:
    """Run a source of one table. Return a function that is true once it has copied the table."""
    source = source_of(server, tables=[f"shop.{table}"], chunk_rows=10)
    async with TableTarget(endpoint, table) as target, asyncio.TaskGroup() as tasks:

        async def is_copied() -> bool:
            kept = await target.checkpoint()
            tables = MySqlCheckpoint.parse(kept).tables.values() if kept else []
            return any(found.copied and not found.sweep for found in tables)

        running = tasks.create_task(source.run(target), name="source")
        try:
            yield is_copied
        except BaseException:
            running.cancel()
            raise
        source.stop()


async def _until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            if await true():
                return
            await asyncio.sleep(POLL_S)


async def _wait_until_marked(
    mark: bytes, source: ApiSource, by_debezium: Callable[[], Awaitable[Changes]]
) -> None:
    """Wait until both have reported a mark. What follows it was not copied."""

    async def is_marked() -> bool:
        sides = [await _stream(source), await by_debezium()]
        return all(any(encoded == mark for encoded, _ in side) for side in sides)

    await _until(is_marked)


async def _stream(source: ApiSource) -> Changes:
    """Return all that the table's stream has."""
    [shard] = await source.shards()
    position: str | None = await source.position(shard.shard_id, None)
    found: list[tuple[bytes, Change]] = []
    while position is not None:
        page = await source.read(position, limit=1000, wait_s=0)
        found += [(one.key_bytes, _change(one)) for one in page.changes]
        position = None if page.at_end else page.following
    return found


def _change(one: change.Change) -> Change:
    columns = {**show_values(one.columns), **dict.fromkeys(one.removed)}
    return Change(one.kind, columns)


def _differences(ours: Mapping[bytes, Shown], theirs: Mapping[bytes, Shown]) -> list[Any]:
    """Return (key, column, ours, theirs) of what is not the same."""
    return [
        (encoded, name, row.get(name), theirs[encoded].get(name))
        for encoded, row in ours.items()
        for name in COLUMNS
        if row.get(name) != theirs[encoded].get(name)
    ]


def _by_key(mark: bytes, changes: Changes) -> dict[bytes, list[Change]]:
    """Return the changes of each key after a mark."""
    [at] = [at for at, (encoded, _) in enumerate(changes) if encoded == mark]
    found: dict[bytes, list[Change]] = {}
    for encoded, one in changes[at + 1 :]:
        found.setdefault(encoded, []).append(one)
    return found
