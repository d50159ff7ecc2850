"""What becomes of rows, and of the application's own writes, when a publication is altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from demo.servers.postgres import PostgreSQL
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import Running, following

pytestmark = pytest.mark.system

PUBLICATION = "rowtide_shop"
MISSED = ("DELETE FROM shop.t WHERE id = 1", "UPDATE shop.t SET n = -n WHERE id > 5")
EACH_TABLE = "SELECT id, n FROM shop.t"

ALTERED: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "a table is taken out": (
        [f"ALTER PUBLICATION {PUBLICATION} DROP TABLE shop.t"],
        [f"ALTER PUBLICATION {PUBLICATION} ADD TABLE shop.t"],
    ),
    "other tables are set": (
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other"],
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other, shop.t"],
    ),
    "deletes and updates are left out": (
        [f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert')"],
        [f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert, update, delete, truncate')"],
    ),
    "rows are left out": (
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other, shop.t WHERE (id > 100)"],
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other, shop.t"],
    ),
    "columns are left out": (
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other, shop.t (id)"],
        [f"ALTER PUBLICATION {PUBLICATION} SET TABLE shop.other, shop.t"],
    ),
    "the publication is dropped": (
        [f"DROP PUBLICATION {PUBLICATION}"],
        [f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.other, shop.t"],
    ),
    "the publication gets another name": (
        [f"ALTER PUBLICATION {PUBLICATION} RENAME TO former"],
        [
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.other, shop.t",
            "DROP PUBLICATION former",
        ],
    ),
}


def make_tables(server: PostgreSQL) -> None:
    server.execute(
        "CREATE TABLE shop.other (id int PRIMARY KEY)",
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int)",
        "INSERT INTO shop.t SELECT i, i FROM generate_series(1, 9) i",
    )


async def still_follows(running: Running) -> None:
    """See what was missed, and then a change that comes in the stream."""
    await running.wait_until_equal("t", EACH_TABLE)
    running.server.execute("UPDATE shop.t SET n = n + 1", "DELETE FROM shop.t WHERE id = 2")
    await running.wait_until_equal("t", EACH_TABLE)


@pytest.mark.parametrize("what", ALTERED)
async def test_what_a_publication_did_not_send_is_copied(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """The source repairs its own publication. Once the changes of the meantime were lost."""
    narrowed, _ = ALTERED[what]
    make_tables(postgres)
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        postgres.execute(*narrowed, *MISSED)
        await still_follows(running)
    assert "copied again" in caplog.text


@pytest.mark.parametrize("running", [True, False], ids=["between two looks", "while it is away"])
@pytest.mark.parametrize("what", ALTERED)
async def test_a_publication_that_somebody_repairs_first(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture, what: str, running: bool
) -> None:
    """At no look anything is missing; only the membership is another one."""
    narrowed, repaired = ALTERED[what]
    make_tables(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as source:
        await source.settle()
        if running:
            postgres.execute(";".join((*narrowed, *MISSED, *repaired)))
            await still_follows(source)
    if not running:
        postgres.execute(*narrowed, *MISSED, *repaired)
        async with following(postgres, target) as source:
            await still_follows(source)
    assert "copied again" in caplog.text


async def test_a_table_is_not_copied_again_for_others(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    make_tables(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        made = len(target.made)
        postgres.execute(
            "CREATE TABLE shop.new (id int PRIMARY KEY)",
            "INSERT INTO shop.new VALUES (1)",
            "CREATE TABLE public.free (id int)",
            f"ALTER PUBLICATION {PUBLICATION} ADD TABLE public.free",
            "CREATE PUBLICATION another FOR ALL TABLES",
            "DROP PUBLICATION another",
            "DROP TABLE public.free",
        )
        await running.wait_until_equal("new", "SELECT * FROM shop.new")
    async with following(postgres, target) as running:
        await running.settle()
    assert len(target.made) == made + 1
    assert "copied again" not in caplog.text


OTHERS: Mapping[str, tuple[str, str]] = {
    "all tables": ("FOR ALL TABLES", ""),
    "a schema": ("FOR TABLES IN SCHEMA shop", ""),
    "a list": ("FOR TABLE shop.other", "ALTER PUBLICATION {} ADD TABLE shop.t"),
}


@pytest.mark.parametrize("what", OTHERS)
async def test_a_publication_that_was_made_by_hand(postgres: PostgreSQL, what: str) -> None:
    """It gets what it lacks, and loses nothing, whatever the source follows."""
    of, _ = OTHERS[what]
    make_tables(postgres)
    postgres.execute("CREATE TABLE public.free (id int)")
    postgres.execute(f"CREATE PUBLICATION {PUBLICATION} {of}")
    if what == "a list":
        postgres.execute(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE public.free")
    before = {table for (table,) in postgres.rows("SELECT tablename FROM pg_publication_tables")}
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        await still_follows(running)
        assert running.lives == 1
    after = {table for (table,) in postgres.rows("SELECT tablename FROM pg_publication_tables")}
    assert after == before | {"t"}
    postgres.execute("DROP TABLE public.free")


async def test_a_part_of_a_publication_that_was_made_by_hand(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    postgres.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.other, shop.t (id)")
    async with following(postgres, MemoryTarget()) as running:
        state = await running.wait_until_failed("shop.t", "not all rows and columns")
        postgres.execute(*MISSED)
        for statement in state.remedy.removeprefix("Run ").rstrip(";").split(";"):
            postgres.execute(statement)
        await still_follows(running)


async def test_a_slot_that_is_older_than_the_publication(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    postgres.rows(f"SELECT pg_create_logical_replication_slot('{PUBLICATION}', 'pgoutput')")
    postgres.execute(*MISSED)
    async with following(postgres, MemoryTarget()) as running:
        await still_follows(running)


async def test_tables_that_are_no_longer_followed_are_taken_out(postgres: PostgreSQL) -> None:
    """Otherwise the server keeps refusing what replication can't send, without need."""
    make_tables(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
    async with following(postgres, target, tables=["shop.other"]) as running:
        await running.settle()
        assert postgres.rows("SELECT tablename FROM pg_publication_tables") == [("other",)]
        postgres.execute(
            "ALTER TABLE shop.t DROP CONSTRAINT t_pkey", "DELETE FROM shop.t WHERE id = 1"
        )


GENERATED: Mapping[str, Sequence[str]] = {
    "a stored column": ["CREATE TABLE shop.t (id int PRIMARY KEY, n int, s int {})"],
    "a stored column and a full identity": [
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int, s int {})",
        "ALTER TABLE shop.t REPLICA IDENTITY FULL",
    ],
    "a stored column that is the key": [
        "CREATE TABLE shop.t (n int, id int, s int {} PRIMARY KEY)"
    ],
    "an identity column": [
        "CREATE TABLE shop.t (s int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id int, n int)",
        "ALTER TABLE shop.t REPLICA IDENTITY FULL",
    ],
    "a stored column in the identity's index": [
        "CREATE TABLE shop.t (n int NOT NULL, id int NOT NULL, s int {} NOT NULL)",
        "CREATE UNIQUE INDEX i ON shop.t (s)",
        "ALTER TABLE shop.t REPLICA IDENTITY USING INDEX i",
    ],
}


@pytest.mark.parametrize("what", GENERATED)
async def test_generated_columns_are_published(postgres: PostgreSQL, what: str) -> None:
    """The application's own UPDATE and DELETE failed once such a table was in the publication."""
    stored = "GENERATED ALWAYS AS (id * 2) STORED"
    postgres.execute(*[statement.format(stored) for statement in GENERATED[what]])
    postgres.execute("INSERT INTO shop.t (id, n) SELECT i, i FROM generate_series(1, 9) i")
    first = "id, n, s" if "PRIMARY KEY, n" in GENERATED[what][0] else "s, id, n"
    query = f"SELECT {first} FROM shop.t"
    async with following(postgres, MemoryTarget()) as running:
        await running.wait_until_equal("t", query)
        postgres.execute(
            "UPDATE shop.t SET n = n + 10 WHERE id < 4",
            "UPDATE shop.t SET id = id + 100 WHERE id = 5",
            "DELETE FROM shop.t WHERE id = 7",
            "INSERT INTO shop.t (id, n) VALUES (50, 50)",
        )
        await running.wait_until_equal("t", query)
        assert running.lives == 1


async def test_a_publication_by_hand_that_does_not_have_generated_columns(
    postgres: PostgreSQL,
) -> None:
    postgres.execute(
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int,"
        " s int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE shop.u (id int, s int GENERATED ALWAYS AS (id * 2) STORED PRIMARY KEY)",
        "CREATE TABLE shop.f (id int PRIMARY KEY, s int GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE shop.f REPLICA IDENTITY FULL",
        "INSERT INTO shop.t (id, n) VALUES (1, 1), (2, 2), (6, 6)",
        f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.t",
    )
    async with following(postgres, MemoryTarget()) as running:
        await running.wait_until_failed("shop.u", "generated key column s")
        await running.wait_until_failed("shop.f", "REPLICA IDENTITY has the generated column s")
        await still_follows(running)
        postgres.execute("INSERT INTO shop.f VALUES (1)", "UPDATE shop.f SET id = 2")
