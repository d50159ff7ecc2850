"""What becomes of rowtide's tables when PostgreSQL's are altered, emptied, renamed, dropped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.core.values.variant import Scalar
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following, plain, read_keyed_rows

pytestmark = pytest.mark.system

LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)"


ALTERED: Mapping[str, str] = {
    "a column without a value": "ALTER TABLE shop.a ADD z int",
    "a column with a value for rows that are there": "ALTER TABLE shop.a ADD z int DEFAULT 5",
    "one whose default goes at once": (
        "ALTER TABLE shop.a ADD z int DEFAULT 5; ALTER TABLE shop.a ALTER z DROP DEFAULT"
    ),
    "one that rewrites the table": "ALTER TABLE shop.a ADD z uuid DEFAULT gen_random_uuid();"
    "ALTER TABLE shop.a ALTER z DROP DEFAULT; ALTER TABLE shop.a ALTER z TYPE text",
    "a column goes": "ALTER TABLE shop.a DROP y",
    "a column goes and comes back": "ALTER TABLE shop.a DROP y; ALTER TABLE shop.a ADD y int",
    "another name": "ALTER TABLE shop.a RENAME y TO yy",
    "another type": "ALTER TABLE shop.a ALTER y TYPE text USING 'n' || y",
    "the same type, other values": "ALTER TABLE shop.a ALTER y TYPE int USING y + 1",
}


@pytest.mark.parametrize("what", ALTERED)
async def test_columns_change_while_rows_do(postgres: PostgreSQL, what: str) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x text, y int)",
        "INSERT INTO shop.a SELECT i, 'x' || i, i FROM generate_series(1, 100) i",
    )
    target = MemoryTarget()
    async with following(postgres, target, chunk_rows=30) as running:
        await running.settle()
        postgres.execute(
            "UPDATE shop.a SET x = 'before' WHERE id = 1",
            ALTERED[what],
            "UPDATE shop.a SET x = 'after' WHERE id IN (1, 2)",
            "INSERT INTO shop.a (id, x) VALUES (101, 'new')",
        )
        await running.until(
            lambda: plain(target.rows["a"]) == read_keyed_rows(postgres, "SELECT * FROM shop.a"),
            what,
        )
        assert running.lives == 1
    async with following(postgres, target) as running:
        await running.settle()
    assert plain(target.rows["a"]) == read_keyed_rows(postgres, "SELECT * FROM shop.a")


async def test_columns_that_change_without_rows_are_found_by_looking(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY)", "INSERT INTO shop.a VALUES (1), (2)"
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute("ALTER TABLE shop.a ADD z int DEFAULT 5")
        await running.until(lambda: plain(target.rows["a"])[2] == {"z": 5}, "it was found")


async def test_tables_are_emptied(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x text)",
        "CREATE TABLE shop.b (id int PRIMARY KEY, a int REFERENCES shop.a)",
        "INSERT INTO shop.a SELECT i, 'x' FROM generate_series(1, 2500) i",
        "INSERT INTO shop.b SELECT i, i FROM generate_series(1, 10) i",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(
            "INSERT INTO shop.a VALUES (5000, 'before'); TRUNCATE shop.a CASCADE;"
            "INSERT INTO shop.a VALUES (1, 'after')",
            "INSERT INTO shop.a VALUES (5000, 'later')",
        )
        await running.settle()
        assert plain(target.rows["a"]) == {1: {"x": "after"}, 5000: {"x": "later"}}
        assert target.rows["b"] == {}


async def test_tables_come_and_go_and_change_their_names(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x text)",
        "CREATE TABLE shop.b (id int PRIMARY KEY, x text)",
        "INSERT INTO shop.a VALUES (1, 'a'), (2, 'a')",
        "INSERT INTO shop.b VALUES (1, 'b'), (3, 'b')",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(
            "CREATE TABLE shop.c (id int PRIMARY KEY, x text)",
            "INSERT INTO shop.c VALUES (1, 'c')",
        )
        await running.until(lambda: "c" in target.rows and bool(target.rows["c"]), "c is there")
        postgres.execute(
            "ALTER TABLE shop.a RENAME TO old",
            "ALTER TABLE shop.b RENAME TO a",
            "INSERT INTO shop.a VALUES (4, 'b')",
            "DROP TABLE shop.c",
            "CREATE TABLE shop.c (id int PRIMARY KEY, x text)",
            "INSERT INTO shop.c VALUES (7, 'c')",
        )
        for name in ("old", "a", "c"):
            await running.until(
                lambda name=name: (
                    plain(target.rows.get(name, {}))  # type: ignore[misc]
                    == read_keyed_rows(postgres, f"SELECT * FROM shop.{name}")
                ),
                f"{name} is what it is",
            )
        assert running.lives == 1
        assert plain(target.rows["b"]) == {1: {"x": "b"}, 3: {"x": "b"}}


KEYS_ALTERED: Mapping[str, tuple[str, str, str]] = {
    "another scale": ("numeric(5,1)", "1.5", "ALTER TABLE shop.a ALTER k TYPE numeric(5,2)"),
    "another value": ("text", "a", "ALTER TABLE shop.a ALTER k TYPE text USING upper(k)"),
}


@pytest.mark.parametrize("what", KEYS_ALTERED)
async def test_rows_of_the_keys_before_an_alteration_go(postgres: PostgreSQL, what: str) -> None:
    kind, value, statement = KEYS_ALTERED[what]
    postgres.execute(
        f"CREATE TABLE shop.a (k {kind} PRIMARY KEY, n int)",
        f"INSERT INTO shop.a VALUES ('{value}', 1)",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(statement, "UPDATE shop.a SET n = 2")
        await running.wait_until_equal("a", "SELECT k::text, n FROM shop.a")


BETWEEN_NAMES: Mapping[str, tuple[str, str]] = {
    "another name": ("ALTER TABLE shop.t RENAME TO u", "ALTER TABLE shop.u RENAME TO t"),
    "another schema": ("ALTER TABLE shop.t SET SCHEMA public", "ALTER TABLE t SET SCHEMA shop"),
}


@pytest.mark.parametrize("patterns", [["shop.t"], ["shop.*", "public.*"]], ids=["one", "all"])
@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "while it is stopped"])
@pytest.mark.parametrize("what", BETWEEN_NAMES)
async def test_changes_under_a_name_of_the_meantime_are_not_lost(
    postgres: PostgreSQL, what: str, runs: bool, patterns: list[str]
) -> None:
    postgres.execute(
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int)",
        "INSERT INTO shop.t VALUES (1, 1), (2, 2), (3, 3)",
    )
    away, back = BETWEEN_NAMES[what]
    elsewhere = "shop.u" if what == "another name" else "public.t"
    names = {} if patterns == ["shop.t"] else {"public.t": "public_t"}
    statements = (
        f"{away}; UPDATE {elsewhere} SET n = 20 WHERE id = 2;"
        f"DELETE FROM {elsewhere} WHERE id = 1; {back}"
    )
    target = MemoryTarget()
    async with following(postgres, target, tables=patterns, names=names) as running:
        await running.settle()
        if runs:
            postgres.execute(statements)
            await running.wait_until_equal("t", "SELECT id, n FROM shop.t")
    if not runs:
        postgres.execute(statements)
    async with following(postgres, target, tables=patterns, names=names) as running:
        await running.wait_until_equal("t", "SELECT id, n FROM shop.t")


async def test_large_values_that_do_not_change_stay(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, n int, big text, more text)",
        "ALTER TABLE shop.a ALTER big SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL",
        f"INSERT INTO shop.a VALUES (1, 1, {LARGE}, {LARGE}), (2, 2, {LARGE}, {LARGE})",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        large = plain(target.rows["a"])[1]["big"]
        begin = len(target.made)
        postgres.execute(
            "UPDATE shop.a SET n = 10 WHERE id = 1",
            "UPDATE shop.a SET more = NULL WHERE id = 1",
            "UPDATE shop.a SET id = 3, n = 20 WHERE id = 2",
        )
        await running.settle()
    assert plain(target.rows["a"]) == {
        1: {"n": 10, "big": large},
        3: {"n": 20, "big": large, "more": large},
    }
    assert target.made[begin].columns == {"n": 10}
    assert target.made[begin + 1].columns == {"n": 10, "more": None}


async def test_a_whole_old_row_tells_what_changed(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, n int, m int, big text)",
        "ALTER TABLE shop.a REPLICA IDENTITY FULL",
        "ALTER TABLE shop.a ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO shop.a VALUES (1, 1, 1, {LARGE})",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        large = plain(target.rows["a"])[1]["big"]
        begin = len(target.made)
        postgres.execute(
            "UPDATE shop.a SET n = 2",
            "UPDATE shop.a SET m = 1",
            "UPDATE shop.a SET m = NULL",
            "UPDATE shop.a SET id = 9",
        )
        await running.settle()
    made = [(row.key[0][1], row.columns) for row in target.made[begin:]]
    assert made == [(1, {"n": 2}), (1, {"m": None}), (1, None), (9, {"n": 2, "big": large})]


async def test_a_table_of_another_key_that_was_removed_from_rowtide_is_copied_again(
    postgres: PostgreSQL,
) -> None:
    """As documented. Once it was created again, empty, and got only later changes."""
    postgres.execute(
        "CREATE TABLE shop.a (id int PRIMARY KEY, x int NOT NULL)",
        "INSERT INTO shop.a VALUES (1, 10), (2, 20)",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
    postgres.execute(
        "ALTER TABLE shop.a DROP CONSTRAINT a_pkey",
        "ALTER TABLE shop.a ADD PRIMARY KEY (x)",
    )
    target.remove("a")
    async with following(postgres, target) as running:
        await running.settle()
    assert plain(target.rows["a"]) == {10: {"id": 1}, 20: {"id": 2}}


STRANGE: Mapping[str, tuple[Scalar, ...]] = {
    "smallint": (2**40, -1),
    "numeric": ("abc", "1.5", ""),
    "date": ("2024-02-31", "2024-01-01", "never"),
    "uuid": ("x", "00000000-0000-0000-0000-000000000000"),
    "text": ("a\0b", "c"),
    "boolean": (7, 1),
    "bytea": (b"\0",),
}


@pytest.mark.parametrize("declared", STRANGE)
async def test_rows_whose_keys_no_row_can_have_go_with_those_that_are_gone(
    postgres: PostgreSQL, declared: str
) -> None:
    """They ended each life of the source."""
    postgres.execute(f"CREATE TABLE shop.a (k {declared} PRIMARY KEY, x int)")
    target = MemoryTarget()
    target.rows["a"] = {(("k", value),): {"x": 1} for value in STRANGE[declared]}
    async with following(postgres, target) as running:
        await running.settle()
        assert plain(target.rows["a"]) == {}
        assert running.lives == 1
