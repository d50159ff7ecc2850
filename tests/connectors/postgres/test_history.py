"""Whatever is done at PostgreSQL, and whenever a source or its server ends: rowtide ends equal.

Writers run while tables are copied and followed: inserts, updates, deletes, changes of the key,
large values that do not change, TRUNCATE, columns that come and go. The source crashes between any
two rows that it writes, the server by ``kill -9``. At the end each row is compared.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.postgres.chunks import Chunks, PostgresChunk
from rowtide.core.values.errors import Rejected
from tests.connectors.memory_target import Crash, MemoryTarget
from tests.connectors.postgres.conftest import MakeServer
from tests.connectors.postgres.following import following, plain

pytestmark = pytest.mark.system

SEED = int(os.environ.get("ROWTIDE_SEED", "0")) or random.randrange(1, 10**9)
KEYS = 400
# Random, so that compression does not keep it in its row.
LARGE = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 100))"

TABLES = (
    "CREATE TABLE shop.a (id int, part text, n bigint, big text, PRIMARY KEY (part, id))",
    "CREATE TABLE shop.f (id int PRIMARY KEY, n bigint, big text)",
    "ALTER TABLE shop.f REPLICA IDENTITY FULL",
    "CREATE TABLE shop.i (code uuid NOT NULL, n bigint)",
    "CREATE UNIQUE INDEX code ON shop.i (code)",
    "ALTER TABLE shop.i REPLICA IDENTITY USING INDEX code",
    f"INSERT INTO shop.a SELECT i, 'p' || i % 3, i, {LARGE} FROM generate_series(1, {KEYS}) i",
    f"INSERT INTO shop.f SELECT i, i, {LARGE} FROM generate_series(1, {KEYS}) i",
    f"INSERT INTO shop.i SELECT md5(i::text)::uuid, i FROM generate_series(1, {KEYS}) i",
)


class Writer:
    """A session that runs random statements until it is stopped."""

    def __init__(self, server: PostgreSQL, number: int) -> None:
        self._server = server
        self._random = random.Random(f"{SEED} {number}")
        self.done = 0

    def run(self, until: threading.Event) -> None:
        while not until.is_set():
            try:
                connection = self._server.connect()
            except psycopg2.OperationalError:
                until.wait(0.05)
                continue
            try:
                self._write(connection, until)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                pass  # The server was killed.
            finally:
                connection.close()

    def _write(self, connection: Any, until: threading.Event) -> None:
        connection.autocommit = False
        while not until.is_set():
            with connection.cursor() as cursor:
                try:
                    for _ in range(self._random.choice((1, 1, 2, 7))):
                        cursor.execute(self._statement())
                    if self._random.random() < 0.1:
                        connection.rollback()
                    connection.commit()
                    self.done += 1
                except (psycopg2.errors.UniqueViolation, psycopg2.errors.DeadlockDetected):
                    connection.rollback()

    def _statement(self) -> str:
        pick = self._random
        number, other, value = pick.randrange(KEYS), pick.randrange(KEYS), pick.randrange(10**6)
        return pick.choice(
            (
                f"INSERT INTO shop.a VALUES ({number}, 'p{number % 3}', {value}, {LARGE})"
                f" ON CONFLICT (part, id) DO UPDATE SET n = {value}",
                f"UPDATE shop.a SET n = {value} WHERE id = {number}",
                f"UPDATE shop.a SET id = {KEYS + value} WHERE id = {number}",
                f"UPDATE shop.a SET part = 'p{value % 4}', n = n + 1 WHERE id = {number}",
                f"UPDATE shop.a SET big = {LARGE} WHERE id = {number}",
                f"UPDATE shop.a SET big = NULL WHERE id = {number}",
                f"DELETE FROM shop.a WHERE id = {number}",
                f"INSERT INTO shop.f VALUES ({number}, {value}, {LARGE}) ON CONFLICT DO NOTHING",
                f"UPDATE shop.f SET n = {value} WHERE id BETWEEN {number} AND {number + 5}",
                f"UPDATE shop.f SET id = {KEYS + value} WHERE id = {number}",
                f"DELETE FROM shop.f WHERE id IN ({number}, {other})",
                f"INSERT INTO shop.i VALUES (md5('{number}')::uuid, {value})"
                " ON CONFLICT (code) DO UPDATE SET n = excluded.n",
                f"DELETE FROM shop.i WHERE n = {number}",
                f"UPDATE shop.i SET code = md5('{value}')::uuid WHERE code = md5('{number}')::uuid",
            )
        )


@contextmanager
def writing(server: PostgreSQL, count: int = 2) -> Iterator[list[Writer]]:
    """Let writers run beside a test."""
    until = threading.Event()
    writers = [Writer(server, number) for number in range(count)]
    threads = [threading.Thread(target=writer.run, args=(until,)) for writer in writers]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        until.set()
        for thread in threads:
            thread.join()


def more(writers: list[Writer], count: int) -> Callable[[], bool]:
    """Return what says whether so many more transactions were made."""
    many = count + sum(writer.done for writer in writers)
    return lambda: sum(writer.done for writer in writers) >= many


def crashing(rows_each: int, times: int) -> Callable[[SourceRow | str], None]:
    """Return a fate that ends the process now and then, between any two things that it keeps."""
    pick = random.Random(SEED)
    left = [pick.randrange(1, rows_each), times]

    def fate(step: SourceRow | str) -> None:
        left[0] -= 1
        if left[0] <= 0 and left[1] > 0:
            left[:] = [pick.randrange(1, rows_each), left[1] - 1]
            raise Crash

    return fate


def insist(server: PostgreSQL, statement: str) -> None:
    """Run a statement that may conflict with the writers' locks, until it succeeds."""
    while True:
        try:
            server.execute(statement)
        except psycopg2.errors.DeadlockDetected:
            continue
        return


def read_table(server: PostgreSQL, table: str, key: int) -> dict[Any, dict[str, Any]]:
    """Return a table's rows; its first ``key`` columns are the key."""
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM shop.{table}")
            names = [column.name for column in cursor.description]
            rows = cursor.fetchall()
    finally:
        connection.close()
    return {
        row[0] if key == 1 else row[:key]: {
            name: value
            for name, value in zip(names[key:], row[key:], strict=True)
            if value is not None
        }
        for row in rows
    }


def assert_equal(server: PostgreSQL, target: MemoryTarget) -> None:
    """Compare row by row."""
    seed = f"ROWTIDE_SEED={SEED}"
    wanted = {(part, number): rest for (number, part), rest in read_table(server, "a", 2).items()}
    assert plain(target.rows["a"]) == wanted, seed
    assert plain(target.rows["f"]) == read_table(server, "f", 1), seed
    assert plain(target.rows["i"]) == read_table(server, "i", 1), seed


async def test_a_copy_under_writes_ends_equal(postgres: PostgreSQL) -> None:
    postgres.execute(*TABLES)
    target = MemoryTarget()
    with writing(postgres) as writers:
        async with following(postgres, target, chunk_rows=37) as running:
            await running.until(running.is_copied, "the tables are copied")
            await running.until(more(writers, 200), "writes go on")
            await asyncio.to_thread(insist, postgres, "TRUNCATE shop.i, shop.f")
            await running.until(more(writers, 200), "and on")
            assert running.lives == 1
    async with following(postgres, target, chunk_rows=37) as running:
        await running.settle()
    assert_equal(postgres, target)


async def test_a_source_that_crashes_anywhere_ends_equal(postgres: PostgreSQL) -> None:
    postgres.execute(*TABLES)
    target = MemoryTarget()
    target.fate = crashing(rows_each=500, times=15)
    with writing(postgres) as writers:
        async with following(postgres, target, chunk_rows=37) as running:
            await running.until(running.is_copied, "the tables are copied")
            await asyncio.to_thread(insist, postgres, "TRUNCATE shop.a")
            await running.until(lambda: running.lives > 10, "it crashed often")
            await running.until(more(writers, 200), "writes go on")
            await asyncio.to_thread(insist, postgres, "ALTER TABLE shop.f ADD extra int DEFAULT 7")
            await running.until(more(writers, 100), "and on")
    async with following(postgres, target, chunk_rows=37) as running:
        await running.settle()
    assert_equal(postgres, target)


async def test_rows_that_are_copied_again_amid_changes_end_equal(postgres: PostgreSQL) -> None:
    postgres.execute(*TABLES)
    target, chance, copied = MemoryTarget(), random.Random(SEED), 0
    target.fate = crashing(rows_each=1500, times=3)
    with writing(postgres) as writers:
        async with following(postgres, target, chunk_rows=37) as running:
            enough = more(writers, 300)
            while not (enough() and running.is_copied() and copied > 20):
                copied += await running.copy_again("f", chance.randrange(2 * KEYS))
    async with following(postgres, target, chunk_rows=37) as running:
        await running.settle()
        with pytest.raises(Rejected, match="No table of the source becomes other now"):
            await running.copy_again("other", 1)
    assert_equal(postgres, target)


async def test_what_was_read_ahead_is_not_made_after_a_row_that_is_copied_again(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, parts = Chunks.read, []

    def count_part(*arguments: Any) -> PostgresChunk | None:
        parts.append(read(*arguments))
        return parts[-1]

    monkeypatch.setattr(Chunks, "read", count_part)
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, n int)",
        "INSERT INTO shop.a SELECT i, i FROM generate_series(1, 30) i",
    )
    target = MemoryTarget()
    target.open.clear()
    async with following(postgres, target, chunk_rows=10) as running:
        await running.until(lambda: len(parts) == 2, "the first is written, the next one is read")
        postgres.execute("UPDATE shop.a SET n = 4711 WHERE id = 15")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(running.copy_again("a", 1), name="again")
            await asyncio.sleep(0)  # It has asked.
            target.open.set()
        await running.settle()
    assert plain(target.rows["a"]) == read_table(postgres, "a", 1)


async def test_a_server_that_is_killed_loses_nothing(make_postgres: MakeServer) -> None:
    server = make_postgres()
    server.execute(*TABLES)
    target = MemoryTarget()
    target.fate = crashing(rows_each=3000, times=2)
    with writing(server) as writers:
        async with following(server, target, chunk_rows=37) as running:
            await running.until(lambda: len(target.made) > 200, "a part is copied")
            for _ in range(2):
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await running.until(more(writers, 100), "writes go on")
            await running.until(running.is_copied, "the tables are copied")
    async with following(server, target, chunk_rows=37) as running:
        await running.settle()
    assert running.read_checkpoint()["epoch"] == 1, "nothing was missed"
    assert_equal(server, target)
