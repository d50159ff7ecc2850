"""A copy says for which transaction it waits; a table that is dropped meanwhile is no fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.sources.postgres import publication, tables
from rowtide.connectors.sources.postgres import waiting as waiting_module
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.source import TableState
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.conftest import MakeServer
from tests.connectors.postgres.following import Running, following, plain

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def ask_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "ASK_S", 0.05)


def make_table(server: PostgreSQL) -> None:
    server.execute(
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int)", "INSERT INTO shop.t VALUES (1, 1)"
    )


async def wait_until_it_says(running: Running, words: Sequence[str]) -> TableState:
    """Wait until the table's state names what its copy waits for."""

    def says() -> bool:
        state = running.states().get("shop.t")
        return state is not None and all(word in state.reason for word in words)

    await running.until(says, f"it says {words}")
    return running.states()["shop.t"]


@pytest.mark.parametrize("slot", [False, True], ids=["for the slot", "for the first chunk"])
async def test_a_copy_says_for_which_transaction_it_waits(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture, slot: bool
) -> None:
    make_table(postgres)
    if slot:
        postgres.rows("SELECT pg_create_logical_replication_slot('rowtide_shop', 'pgoutput')")
        postgres.execute("CREATE PUBLICATION rowtide_shop FOR TABLE shop.t")
    connection = postgres.connect()
    connection.autocommit = False
    pid = connection.info.backend_pid
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop.t VALUES (2, 4711)")
        async with following(postgres, MemoryTarget()) as running:
            state = await wait_until_it_says(running, [f"process {pid} (role postgres", "open for"])
            assert state.state == "copying"
            assert f"pg_terminate_backend({pid})" in state.reason
            assert "4711" not in state.reason, "a statement may have secrets"
            connection.commit()
            await running.wait_until_equal("t", "SELECT * FROM shop.t")
            assert running.states()["shop.t"].reason == ""
    finally:
        connection.close()
    assert caplog.text.count("the copy of tables waits for") == 1


async def test_a_role_that_may_not_see_other_sessions(postgres: PostgreSQL) -> None:
    make_table(postgres)
    postgres.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN REPLICATION",
        "GRANT USAGE ON SCHEMA shop TO reader",
        "GRANT SELECT ON shop.t TO reader",
        "CREATE PUBLICATION rowtide_shop FOR TABLE shop.t",
    )
    connection = postgres.connect()
    connection.autocommit = False
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop.t VALUES (2, 2)")
        async with following(postgres, MemoryTarget(), user="reader") as running:
            pid = connection.info.backend_pid
            await wait_until_it_says(running, [f"process {pid}", "pg_read_all_stats"])
            connection.rollback()
            await running.wait_until_equal("t", "SELECT * FROM shop.t")
    finally:
        connection.close()
        postgres.drop_slots()
        postgres.execute("DROP OWNED BY reader CASCADE", "DROP ROLE reader")


async def test_a_prepared_transaction(make_postgres: MakeServer) -> None:
    server = make_postgres("max_prepared_transactions=2")
    make_table(server)
    server.execute("BEGIN; INSERT INTO shop.t VALUES (2, 2); PREPARE TRANSACTION 'forgotten'")
    async with following(server, MemoryTarget()) as running:
        await wait_until_it_says(running, ["prepared transaction 'forgotten'", "ROLLBACK PREPARED"])
        server.execute("COMMIT PREPARED 'forgotten'")
        await running.wait_until_equal("t", "SELECT * FROM shop.t")


DROPPED = {
    "before its columns are read": (tables, "_columns", "DROP TABLE shop.t"),
    "before it is published": (publication, "_put_in", "DROP TABLE shop.t"),
    "before its schema's table is published": (publication, "_put_in", "DROP SCHEMA old CASCADE"),
}


@pytest.mark.parametrize("when", DROPPED)
async def test_a_table_that_is_dropped_between_two_questions(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    module, name, statement = DROPPED[when]
    make_table(postgres)
    postgres.execute(
        "CREATE SCHEMA old",
        "CREATE TABLE old.u (id int PRIMARY KEY)",
        "CREATE TABLE shop.good (id int PRIMARY KEY)",
        "INSERT INTO shop.good VALUES (1)",
    )
    asked = getattr(module, name)
    statements = [statement]

    def dropping(server: PostgresServer, *arguments: object, **named: object) -> object:
        if statements:
            postgres.execute(statements.pop())
        return asked(server, *arguments, **named)

    monkeypatch.setattr(module, name, dropping)
    target = MemoryTarget()
    async with following(postgres, target, tables=["shop.*", "old.*"]) as running:
        await running.wait_until_equal("good", "SELECT * FROM shop.good")
        await running.until(
            lambda: all(state.state == "following" for state in running.states().values()),
            "nothing failed",
        )
        assert running.lives == 1
    postgres.execute("DROP SCHEMA IF EXISTS old CASCADE")


async def test_tables_that_are_dropped_while_they_are_copied(postgres: PostgreSQL) -> None:
    for number in range(3):
        postgres.execute(
            f"CREATE TABLE shop.t{number} (id int PRIMARY KEY)",
            f"INSERT INTO shop.t{number} SELECT i FROM generate_series(1, 100) i",
        )
    target = MemoryTarget()
    async with following(postgres, target, chunk_rows=10) as running:
        await running.until(lambda: len(target.made) > 20, "a copy has begun")
        target.open.clear()
        await asyncio.to_thread(postgres.execute, "DROP TABLE shop.t0, shop.t1")
        target.open.set()
        await running.wait_until_equal("t2", "SELECT * FROM shop.t2")
        await running.until(lambda: list(running.states()) == ["shop.t2"], "the others are gone")
        assert running.lives == 1
    assert len(plain(target.rows["t2"])) == 100
