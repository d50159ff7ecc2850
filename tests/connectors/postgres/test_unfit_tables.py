"""Tables that can't be followed: each is reported with a reason and a remedy, the others flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import TableShape
from rowtide.core.values.errors import Rejected
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following, plain, source_of

pytestmark = pytest.mark.system

GOOD = "CREATE TABLE shop.good (id int PRIMARY KEY, n int)"
FIVE = "a int, b int, c int, d int, e int, PRIMARY KEY (a, b, c, d, e)"

UNFIT: Mapping[str, tuple[Sequence[str], str, str, str]] = {
    "no key": (
        ["CREATE TABLE shop.t (x int)"],
        *("shop.t", "no primary key", "USING INDEX"),
    ),
    "full, no key": (
        ["CREATE TABLE shop.t (x int)", "ALTER TABLE shop.t REPLICA IDENTITY FULL"],
        *("shop.t", "no primary key", "'keys'"),
    ),
    # An update of all keys may pass through rows of one key; and without FULL it would fail there.
    "deferrable key": (
        [
            "CREATE TABLE shop.t (x int PRIMARY KEY DEFERRABLE)",
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        ],
        *("shop.t", "DEFERRABLE", "'keys'"),
    ),
    "nothing": (
        ["CREATE TABLE shop.t (x int PRIMARY KEY)", "ALTER TABLE shop.t REPLICA IDENTITY NOTHING"],
        *("shop.t", "REPLICA IDENTITY is NOTHING", "REPLICA IDENTITY DEFAULT"),
    ),
    "an index of the identity that is gone": (
        [
            "CREATE TABLE shop.t (x int PRIMARY KEY, y int NOT NULL)",
            "CREATE UNIQUE INDEX i ON shop.t (y)",
            "ALTER TABLE shop.t REPLICA IDENTITY USING INDEX i",
            "DROP INDEX shop.i",
        ],
        *("shop.t", "no primary key", "USING INDEX"),
    ),
    "wide key": ([f"CREATE TABLE shop.t ({FIVE})"], "shop.t", "its key has 5 columns", "'keys'"),
    "partitioned, no key": (
        ["CREATE TABLE shop.t (a int) PARTITION BY RANGE (a)"],
        *("shop.t", "no primary key", "USING INDEX"),
    ),
    "unlogged": (
        ["CREATE UNLOGGED TABLE shop.t (a int PRIMARY KEY)"],
        *("shop.t", "is unlogged", "SET LOGGED"),
    ),
    "a hyphen": (
        ['CREATE TABLE shop."order-items" (a int PRIMARY KEY)'],
        *("shop.order-items", "no table with the name 'order-items'", "under 'names'"),
    ),
    "Chinese letters": (
        ['CREATE TABLE shop."订单" (a int PRIMARY KEY)'],
        *("shop.订单", "no table with the name '订单'", "under 'names'"),
    ),
    "a digit first": (
        ['CREATE TABLE shop."2024" (a int PRIMARY KEY)'],
        *("shop.2024", "no table with the name '2024'", "under 'names'"),
    ),
    "a column that rowtide has no name for": (
        ['CREATE TABLE shop.t (a int PRIMARY KEY, "#b" int)'],
        *("shop.t", "no column with the name '#b'", "RENAME COLUMN"),
    ),
    "a clash": (
        ['CREATE SCHEMA "shop.x"', 'CREATE TABLE "shop.x".good (a int PRIMARY KEY)'],
        *("shop.x.good", "would both be the table good", "under 'names'"),
    ),
    # The server would refuse the application's own UPDATE of a published table.
    "a virtual column in a full identity": (
        [
            "CREATE TABLE shop.t (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) VIRTUAL)",
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        ],
        *("shop.t", "generated column b", "REPLICA IDENTITY DEFAULT"),
    ),
}


@pytest.mark.parametrize("what", UNFIT)
async def test_an_unfit_table_does_not_stop_the_others(postgres: PostgreSQL, what: str) -> None:
    statements, table, why, remedy = UNFIT[what]
    postgres.execute(GOOD, "INSERT INTO shop.good VALUES (1, 1)", *statements)
    target = MemoryTarget()
    for number in range(2):  # At the first start as at the next.
        async with following(postgres, target, tables=["shop*.*"]) as running:
            state = await running.wait_until_failed(table, "")
            assert why.lower() in state.reason.lower()
            assert remedy in state.remedy
            postgres.execute(f"INSERT INTO shop.good VALUES ({number + 2}, 1)")
            await running.wait_until_equal("good", "SELECT * FROM shop.good")
            assert running.lives == 1
    [(published,)] = postgres.rows("SELECT count(*) FROM pg_publication_rel")
    assert published == 1, "only what is followed"


MENDED: Mapping[str, tuple[Sequence[str], str, str]] = {
    "a primary key": (
        ["CREATE TABLE shop.t (id int, n int)"],
        "no primary key",
        "ALTER TABLE shop.t ADD PRIMARY KEY (id)",
    ),
    "an identity": (
        [
            "CREATE TABLE shop.t (id int PRIMARY KEY, n int)",
            "ALTER TABLE shop.t REPLICA IDENTITY NOTHING",
        ],
        "NOTHING",
        "ALTER TABLE shop.t REPLICA IDENTITY DEFAULT",
    ),
    "a name": (
        ['CREATE TABLE shop."t-t" (id int PRIMARY KEY, n int)'],
        "no table with the name",
        'ALTER TABLE shop."t-t" RENAME TO t',
    ),
}


@pytest.mark.parametrize("what", MENDED)
async def test_an_unfit_table_is_copied_once_it_fits(postgres: PostgreSQL, what: str) -> None:
    statements, why, remedy = MENDED[what]
    postgres.execute(*statements)
    name = "t-t" if "t-t" in statements[0] else "t"
    postgres.execute(f'INSERT INTO shop."{name}" VALUES (1, 1), (2, 2)')
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.wait_until_failed(f"shop.{name}", why)
        postgres.execute(remedy, "INSERT INTO shop.t VALUES (3, 3)")
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
        postgres.execute("UPDATE shop.t SET n = -n", "DELETE FROM shop.t WHERE id = 2")
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
        assert running.lives == 1


BROKEN: Mapping[str, tuple[Sequence[str], str, Sequence[str]]] = {
    "the key goes": (
        ["ALTER TABLE shop.t DROP CONSTRAINT t_pkey"],
        "no primary key",
        ["ALTER TABLE shop.t ADD PRIMARY KEY (id)"],
    ),
    "the identity goes": (
        ["ALTER TABLE shop.t REPLICA IDENTITY NOTHING"],
        "NOTHING",
        ["ALTER TABLE shop.t REPLICA IDENTITY DEFAULT"],
    ),
    "another key": (
        ["ALTER TABLE shop.t DROP CONSTRAINT t_pkey", "ALTER TABLE shop.t ADD PRIMARY KEY (n)"],
        "another key",
        ["ALTER TABLE shop.t DROP CONSTRAINT t_pkey", "ALTER TABLE shop.t ADD PRIMARY KEY (id)"],
    ),
    "a virtual column": (
        [
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
            "ALTER TABLE shop.t ADD v int GENERATED ALWAYS AS (n) VIRTUAL",
        ],
        "generated column v",
        ["ALTER TABLE shop.t DROP COLUMN v"],
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_a_followed_table_that_becomes_unfit(postgres: PostgreSQL, what: str) -> None:
    """Rows that were deleted meanwhile go, and the application's own writes go on."""
    statements, why, remedy = BROKEN[what]
    postgres.execute(GOOD, "CREATE TABLE shop.t (id int PRIMARY KEY, n int NOT NULL)")
    postgres.execute("INSERT INTO shop.t SELECT i, i FROM generate_series(1, 20) i")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(*statements, "INSERT INTO shop.t (id, n) VALUES (101, 101)")
        await running.wait_until_failed("shop.t", why)
        postgres.execute("INSERT INTO shop.t (id, n) VALUES (102, 102)")
        if why != "another key":
            postgres.execute("DELETE FROM shop.t WHERE id < 5", "UPDATE shop.t SET n = n + 1")
        postgres.execute("INSERT INTO shop.good VALUES (1, 1)")
        await running.wait_until_equal("good", "SELECT * FROM shop.good")
        postgres.execute(*remedy)
        await running.wait_until_equal("t", "SELECT id, n FROM shop.t")
        postgres.execute("UPDATE shop.t SET n = -n", "DELETE FROM shop.t WHERE id = 7")
        await running.wait_until_equal("t", "SELECT id, n FROM shop.t")
        assert running.lives == 1


async def test_a_table_that_rowtide_has_by_another_key(postgres: PostgreSQL) -> None:
    postgres.execute(GOOD, "CREATE TABLE shop.t (a int PRIMARY KEY, b int NOT NULL UNIQUE)")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
    postgres.execute("ALTER TABLE shop.t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (b)")
    async with following(postgres, target) as running:
        state = await running.wait_until_failed("shop.t", "another key")
        assert "Delete rowtide's table t" in state.remedy
        postgres.execute("INSERT INTO shop.good VALUES (1, 1)")
        await running.wait_until_equal("good", "SELECT * FROM shop.good")


class SmallTarget(MemoryTarget):
    """An instance that has room for two tables."""

    async def ensure_table(self, table: TableShape) -> None:
        if table.name not in self.shapes and len(self.shapes) == 2:
            raise Rejected("OTSQuotaExhausted", "Number of tables exceeds the quota:2.")
        await super().ensure_table(table)


async def test_more_tables_than_an_instance_has_room_for(postgres: PostgreSQL) -> None:
    for name in "abc":
        postgres.execute(
            f"CREATE TABLE shop.{name} (id int PRIMARY KEY)", f"INSERT INTO shop.{name} VALUES (1)"
        )
    target = SmallTarget()
    async with following(postgres, target) as running:
        state = await running.wait_until_failed("shop.c", "exceeds the quota:2")
        assert "'except'" in state.remedy
        await running.wait_until_equal("a", "SELECT * FROM shop.a")
        await running.wait_until_equal("b", "SELECT * FROM shop.b")
        del target.shapes["b"], target.rows["b"]
        postgres.execute("DROP TABLE shop.b")
        await running.wait_until_equal("c", "SELECT * FROM shop.c")


async def test_the_table_that_has_a_name_keeps_it(postgres: PostgreSQL) -> None:
    """A table that comes later and sorts before it would have taken its rows over."""
    postgres.execute("CREATE SCHEMA archive", GOOD, "INSERT INTO shop.good VALUES (1, 1)")
    target = MemoryTarget()
    tables = ["shop.*", "archive.*"]
    try:
        async with following(postgres, target, tables=tables) as running:
            await running.settle()
            postgres.execute(
                "CREATE TABLE archive.good (id int PRIMARY KEY, n int)",
                "INSERT INTO archive.good VALUES (2, 2)",
            )
            await running.wait_until_failed("archive.good", "would both be")
        with pytest.raises(SettingsRefused, match="would both be the table good"):
            await source_of(postgres, tables=tables).side("good")
        async with following(postgres, target, tables=tables) as running:
            await running.wait_until_failed("archive.good", "would both be")
            postgres.execute("INSERT INTO archive.good VALUES (3, 3)")
            await running.wait_until_equal("good", "SELECT * FROM shop.good")
            postgres.execute("DROP TABLE shop.good")
            await running.wait_until_equal("good", "SELECT * FROM archive.good")
            postgres.execute("INSERT INTO archive.good VALUES (4, 4)")
            await running.wait_until_equal("good", "SELECT * FROM archive.good")
            assert running.lives == 1
    finally:
        postgres.execute("DROP SCHEMA archive CASCADE")


async def test_tables_are_left_out(postgres: PostgreSQL) -> None:
    postgres.execute(GOOD, "CREATE TABLE shop.tmp_a (x int)", "CREATE TABLE shop.log (x int)")
    target = MemoryTarget()
    left_out = {"except": ["shop.tmp_*", "shop.log"]}
    async with following(postgres, target, **left_out) as running:
        await running.settle()
        assert list(running.states()) == ["shop.good"]


KEYS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "a table without a primary key": (
        [
            "CREATE TABLE shop.t (id int NOT NULL UNIQUE, n int)",
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        ],
        ["id"],
    ),
    "five key columns": (
        [
            f"CREATE TABLE shop.t (id int NOT NULL UNIQUE, n int, {FIVE})".replace(
                "int,", "int DEFAULT 1,"
            ).replace("e int DEFAULT 1,", "e serial,"),
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        ],
        ["id"],
    ),
    "a part of the identity that is unique alone": (
        ["CREATE TABLE shop.t (id int UNIQUE, n int, PRIMARY KEY (n, id))"],
        ["id"],
    ),
    "a deferrable primary key": (
        [
            "CREATE TABLE shop.t (n int PRIMARY KEY DEFERRABLE, id int NOT NULL UNIQUE)",
            "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        ],
        ["id"],
    ),
}


@pytest.mark.parametrize("what", KEYS)
async def test_keys_are_named_by_the_settings(postgres: PostgreSQL, what: str) -> None:
    statements, key = KEYS[what]
    query = "SELECT id, n FROM shop.t"
    columns = (*statements, "INSERT INTO shop.t (id, n) SELECT i, i FROM generate_series(1, 9) i")
    postgres.execute(*columns)
    if "five" in what:
        query = "SELECT * FROM shop.t"
    target = MemoryTarget()
    async with following(postgres, target, keys={"shop.t": key}) as running:
        await running.wait_until_equal("t", query)
        postgres.execute(
            "UPDATE shop.t SET n = n + 100 WHERE id < 5",
            "UPDATE shop.t SET id = id + 100 WHERE id = 3",
            "DELETE FROM shop.t WHERE id = 4",
        )
        await running.wait_until_equal("t", query)
        assert running.lives == 1


UNFIT_KEYS: Mapping[str, tuple[Sequence[str], str]] = {
    "not unique": (["CREATE TABLE shop.t (id int NOT NULL, n int)"], "no unique index"),
    "NULL": (["CREATE TABLE shop.t (id int UNIQUE, n int)"], "no unique index"),
    "partial": (
        [
            "CREATE TABLE shop.t (id int NOT NULL, n int)",
            "CREATE UNIQUE INDEX i ON shop.t (id) WHERE n > 0",
        ],
        "no unique index",
    ),
    "not in the identity": (
        ["CREATE TABLE shop.t (id int NOT NULL UNIQUE, n int PRIMARY KEY)"],
        "does not send id of rows that are deleted",
    ),
    "a column that is not there": (
        ["CREATE TABLE shop.t (n int PRIMARY KEY)"],
        "no unique index",
    ),
}


@pytest.mark.parametrize("what", UNFIT_KEYS)
async def test_keys_that_can_not_be(postgres: PostgreSQL, what: str) -> None:
    statements, why = UNFIT_KEYS[what]
    postgres.execute(*statements)
    async with following(postgres, MemoryTarget(), keys={"shop.t": ["id"]}) as running:
        await running.wait_until_failed("shop.t", why)


async def test_a_copy_tells_its_progress(postgres: PostgreSQL) -> None:
    postgres.execute(
        GOOD, "INSERT INTO shop.good SELECT i, i FROM generate_series(1, 90) i", "ANALYZE shop.good"
    )
    target = MemoryTarget()
    seen: list[Any] = []
    async with following(postgres, target, chunk_rows=30) as running:
        target.fate = lambda step: seen.append(running.states()["shop.good"])
        await running.settle()
        target.fate = lambda step: None
        state = running.states()["shop.good"]
        assert (state.state, state.rows_copied, state.rows_estimate) == ("following", 0, 90)
    copying = [state for state in seen if state.state == "copying"]
    assert {state.rows_copied for state in copying} >= {0, 30, 60}
    assert {state.rows_estimate for state in copying} == {90}


@pytest.fixture
def reader(postgres: PostgreSQL) -> Iterator[str]:
    """A role that may replicate, read and publish; it owns no table."""
    postgres.execute(
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE {postgres.database} TO reader",
        "GRANT USAGE, CREATE ON SCHEMA shop TO reader",
    )
    yield "reader"
    postgres.execute("DROP OWNED BY reader CASCADE", "DROP ROLE reader")


OWN = "ALTER TABLE shop.t OWNER TO reader"
HIDE = "CREATE POLICY half ON shop.t USING (id % 2 = 0)"
ENABLE = "ALTER TABLE shop.t ENABLE ROW LEVEL SECURITY"
FORCE = "ALTER TABLE shop.t FORCE ROW LEVEL SECURITY"

POLICIES: Mapping[str, tuple[Sequence[str], str, str]] = {
    "the owner is forced": ([OWN, HIDE, ENABLE, FORCE], "forced", "NO FORCE ROW LEVEL SECURITY"),
    "another's table": (
        ["GRANT SELECT ON shop.t TO reader", HIDE, ENABLE],
        "hides rows from the role reader",
        "BYPASSRLS",
    ),
    "security without a policy hides every row": (
        ["GRANT SELECT ON shop.t TO reader", ENABLE],
        "hides rows from the role reader",
        "BYPASSRLS",
    ),
}


def make_ten(server: PostgreSQL) -> None:
    server.execute(
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int)",
        "INSERT INTO shop.t SELECT i, i FROM generate_series(1, 10) i",
    )


@pytest.mark.parametrize("what", POLICIES)
async def test_a_policy_never_hides_rows_from_a_copy(
    postgres: PostgreSQL, reader: str, what: str
) -> None:
    statements, why, remedy = POLICIES[what]
    make_ten(postgres)
    postgres.execute(*statements)
    async with following(postgres, MemoryTarget(), user=reader) as running:
        state = await running.wait_until_failed("shop.t", why)
        assert remedy in state.remedy
    with pytest.raises(SettingsRefused, match="ow level security"):
        await source_of(postgres, user=reader).side("t")


FINE: Mapping[str, Sequence[str]] = {
    "the owner": [OWN, HIDE, ENABLE],
    "BYPASSRLS": [OWN, HIDE, ENABLE, FORCE, "ALTER ROLE reader BYPASSRLS"],
    "a policy that is not enabled": [OWN, HIDE],
}


@pytest.mark.parametrize("what", FINE)
async def test_a_policy_that_hides_nothing_from_the_role(
    postgres: PostgreSQL, reader: str, what: str
) -> None:
    make_ten(postgres)
    postgres.execute(*FINE[what])
    async with following(postgres, MemoryTarget(), user=reader) as running:
        await running.wait_until_equal("t", "SELECT * FROM shop.t")


async def test_a_policy_that_comes_later(postgres: PostgreSQL, reader: str) -> None:
    """Rows that it hides were deleted by a rewind, and ``verify`` said that all was equal."""
    make_ten(postgres)
    postgres.execute(OWN)
    target = MemoryTarget()
    async with following(postgres, target, user=reader) as running:
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
    postgres.execute(HIDE, ENABLE, FORCE)
    target.kept = source_of(postgres).begin_again(target.kept)
    async with following(postgres, target, user=reader) as running:
        await running.wait_until_failed("shop.t", "forced")
        assert len(plain(target.rows["t"])) == 10
        postgres.execute("DELETE FROM shop.t WHERE id = 4", "UPDATE shop.t SET n = 0 WHERE id = 5")
        postgres.execute("ALTER TABLE shop.t NO FORCE ROW LEVEL SECURITY")
        await running.wait_until_equal("t", "SELECT * FROM shop.t")


async def test_a_grant_that_goes_and_comes_back(postgres: PostgreSQL, reader: str) -> None:
    make_ten(postgres)
    postgres.execute(
        GOOD,
        "ALTER TABLE shop.good OWNER TO reader",
        "CREATE PUBLICATION rowtide_shop FOR TABLE shop.t",
        "ALTER PUBLICATION rowtide_shop OWNER TO reader",
    )
    async with following(postgres, MemoryTarget(), user=reader) as running:
        state = await running.wait_until_failed("shop.t", "may not read it")
        assert 'GRANT SELECT ON "shop"."t" TO "reader"' in state.remedy
        postgres.execute('GRANT SELECT ON "shop"."t" TO "reader"')
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
        postgres.execute("REVOKE SELECT ON shop.t FROM reader")
        await running.wait_until_failed("shop.t", "may not read it")
        postgres.execute("DELETE FROM shop.t WHERE id = 1", "INSERT INTO shop.good VALUES (1, 1)")
        await running.wait_until_equal("good", "SELECT * FROM shop.good")
        postgres.execute("GRANT SELECT ON shop.t TO reader")
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
        assert running.lives == 1


async def test_a_table_that_the_role_does_not_own(postgres: PostgreSQL, reader: str) -> None:
    make_ten(postgres)
    postgres.execute(
        "GRANT SELECT ON shop.t TO reader", GOOD, "ALTER TABLE shop.good OWNER TO reader"
    )
    async with following(postgres, MemoryTarget(), user=reader) as running:
        state = await running.wait_until_failed("shop.t", "not in the publication")
        assert 'ALTER TABLE "shop"."t" OWNER TO "reader"' in state.remedy
        postgres.execute("INSERT INTO shop.good VALUES (1, 1)")
        await running.wait_until_equal("good", "SELECT * FROM shop.good")
        postgres.execute('ALTER PUBLICATION "rowtide_shop" ADD TABLE ONLY "shop"."t"')
        await running.wait_until_equal("t", "SELECT * FROM shop.t")
