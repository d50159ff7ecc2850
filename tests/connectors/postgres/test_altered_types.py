"""``ALTER TYPE`` changes what the server writes of old rows: their tables are copied again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from demo.servers.postgres import PostgreSQL
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following

pytestmark = pytest.mark.system

MOOD = "CREATE TYPE shop.mood AS ENUM ('sad', 'ok')"
RENAME = "ALTER TYPE shop.mood RENAME VALUE 'sad' TO 'blue'"

USES: Mapping[str, tuple[Sequence[str], str, str, str]] = {
    "an enum": ([], "shop.mood", "'sad'", RENAME),
    "an array": ([], "shop.mood[]", "'{sad,ok}'", RENAME),
    "a domain": (["CREATE DOMAIN shop.d AS shop.mood"], "shop.d", "'sad'", RENAME),
    "an array of a domain": (["CREATE DOMAIN shop.d AS shop.mood"], "shop.d[]", "'{sad}'", RENAME),
    "a domain over an array": (
        ["CREATE DOMAIN shop.d AS shop.mood[]"],
        *("shop.d", "'{ok,sad}'", RENAME),
    ),
    "a composite": (
        ["CREATE TYPE shop.c AS (n int, m shop.mood)"],
        *("shop.c", "'(1,sad)'", RENAME),
    ),
    "an array of composites within a composite": (
        ["CREATE TYPE shop.c AS (m shop.mood)", "CREATE TYPE shop.cc AS (c shop.c[])"],
        *("shop.cc", "ROW(ARRAY[ROW('sad')::shop.c])::shop.cc", RENAME),
    ),
    "a range": (
        ["CREATE TYPE shop.r AS RANGE (subtype = shop.mood)"],
        *("shop.r", "'[sad,ok]'", RENAME),
    ),
    "a multirange": (
        [
            "CREATE TYPE shop.r AS RANGE (subtype = shop.mood,"
            " multirange_type_name = shop.multimood)"
        ],
        *("shop.multimood", "'{[sad,ok]}'", RENAME),
    ),
    "the row of another table": (
        ["CREATE TABLE public.kinds (m shop.mood)"],
        *("public.kinds", "'(sad)'", RENAME),
    ),
    "an attribute that is added": (
        ["CREATE TYPE shop.c AS (n int)"],
        *("shop.c", "'(1)'", "ALTER TYPE shop.c ADD ATTRIBUTE m int"),
    ),
    "an attribute that is dropped": (
        ["CREATE TYPE shop.c AS (n int, m int)"],
        *("shop.c", "'(1,2)'", "ALTER TYPE shop.c DROP ATTRIBUTE m"),
    ),
}


@pytest.mark.parametrize("away", [False, True], ids=["while it runs", "while it is away"])
@pytest.mark.parametrize("what", USES)
async def test_old_rows_get_the_new_names(postgres: PostgreSQL, what: str, away: bool) -> None:
    types, declared, value, altered = USES[what]
    postgres.execute(
        MOOD,
        *types,
        f"CREATE TABLE shop.t (id int PRIMARY KEY, v {declared})",
        f"INSERT INTO shop.t SELECT i, {value} FROM generate_series(1, 3) i",
    )
    query = "SELECT id, v::text FROM shop.t"
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        if not away:
            postgres.execute(altered)
            await running.wait_until_equal("t", query)
            assert running.lives == 1
    if away:
        postgres.execute(altered)
        async with following(postgres, target) as running:
            await running.wait_until_equal("t", query)
    postgres.execute("DROP TABLE shop.t", "DROP TABLE IF EXISTS public.kinds")


async def test_a_key_gets_the_new_name(postgres: PostgreSQL) -> None:
    postgres.execute(
        MOOD,
        "CREATE TABLE shop.t (m shop.mood PRIMARY KEY, n int)",
        "INSERT INTO shop.t VALUES ('sad', 1), ('ok', 2)",
    )
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        postgres.execute(RENAME)
        await running.wait_until_equal("t", "SELECT m::text, n FROM shop.t")


async def test_a_label_that_is_added_changes_no_row(postgres: PostgreSQL) -> None:
    postgres.execute(
        MOOD,
        "CREATE TABLE shop.t (id int PRIMARY KEY, m shop.mood)",
        "INSERT INTO shop.t VALUES (1, 'sad')",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(
            "ALTER TYPE shop.mood ADD VALUE 'angry' BEFORE 'ok'",
            "INSERT INTO shop.t VALUES (2, 'angry')",
        )
        await running.settle()
    async with following(postgres, target) as running:
        await running.settle()
        assert len(target.made) == 2
        postgres.execute("ALTER TYPE shop.mood RENAME VALUE 'angry' TO 'cross'")
        await running.wait_until_equal("t", "SELECT id, m::text FROM shop.t")
