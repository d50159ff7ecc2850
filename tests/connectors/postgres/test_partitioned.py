"""A partitioned table is followed as one table, whatever becomes of its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.postgres import follower
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import Running, following, plain, source_of

pytestmark = pytest.mark.system

EACH_ROW = "SELECT id, n, note FROM shop.t"
NO_PARTITION = """
SELECT 'shop.' || relname FROM pg_class
 WHERE relnamespace = 'shop'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"


def make_tables(server: PostgreSQL) -> None:
    """Make a table with a partition of ids to 100, two in one to 200, and one to 300."""
    server.execute(
        "CREATE TABLE shop.other (id int PRIMARY KEY, n int)",
        "INSERT INTO shop.other VALUES (1, 1)",
        "CREATE TABLE shop.t (id int PRIMARY KEY, n int, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE shop.t_0 PARTITION OF shop.t FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE shop.t_1 PARTITION OF shop.t FOR VALUES FROM (100) TO (200)"
        " PARTITION BY RANGE (id)",
        "CREATE TABLE shop.t_1a PARTITION OF shop.t_1 FOR VALUES FROM (100) TO (150)",
        "CREATE TABLE shop.t_1b PARTITION OF shop.t_1 FOR VALUES FROM (150) TO (200)",
        # Its columns are in another order.
        "CREATE TABLE shop.t_2 (note text, gone int, n int, id int PRIMARY KEY)",
        "ALTER TABLE shop.t_2 DROP COLUMN gone",
        "ALTER TABLE shop.t ATTACH PARTITION shop.t_2 FOR VALUES FROM (200) TO (300)",
        "INSERT INTO shop.t SELECT i, i, 'note ' || i FROM generate_series(1, 299, 7) i",
        f"UPDATE shop.t SET note = {LARGE} WHERE id % 2 = 0",
    )


async def still_follows(running: Running) -> None:
    """See what was done, and then changes that come in the stream."""
    await running.wait_until_equal("t", EACH_ROW)
    running.server.execute(
        "UPDATE shop.t SET n = n + 1", "DELETE FROM shop.t WHERE id = (SELECT max(id) FROM shop.t)"
    )
    await running.wait_until_equal("t", EACH_ROW)
    assert running.lives == 1
    assert set(running.states()) == {name for (name,) in running.server.rows(NO_PARTITION)}


STREAMED: Mapping[str, Sequence[str]] = {
    "rows": [
        "INSERT INTO shop.t VALUES (2, 2, 'a'), (102, 2, 'b'), (202, 2, 'c')",
        "UPDATE shop.t SET n = 0 WHERE id > 50",
        "DELETE FROM shop.t WHERE id % 3 = 0",
    ],
    "rows of a partition by its own name": [
        "INSERT INTO shop.t_0 VALUES (2, 2, 'a')",
        "UPDATE shop.t_1a SET n = 0",
        "DELETE FROM shop.t_2 WHERE id % 3 = 0",
    ],
    "rows that move to another partition": [
        "UPDATE shop.t SET id = id + 100 WHERE id < 200 AND id % 2 = 0",
        "UPDATE shop.t SET id = id + 50, n = 7 WHERE id BETWEEN 100 AND 130",
    ],
    "a key that changes within a partition": ["UPDATE shop.t SET id = id + 1"],
    "large values that stay": ["UPDATE shop.t SET n = -n"],
    "an empty partition": [
        "CREATE TABLE shop.t_3 PARTITION OF shop.t FOR VALUES FROM (300) TO (400)"
    ],
    "an empty partition of a partition": [
        "CREATE TABLE shop.t_3 PARTITION OF shop.t FOR VALUES FROM (300) TO (400)"
        " PARTITION BY RANGE (id)",
        "CREATE TABLE shop.t_3a PARTITION OF shop.t_3 FOR VALUES FROM (300) TO (350)",
    ],
}
REGROUPED: Mapping[str, Sequence[str]] = {
    "all is truncated": ["TRUNCATE shop.t", "INSERT INTO shop.t VALUES (1, 2), (105, 1)"],
    "a partition is truncated": ["TRUNCATE shop.t_0"],
    "a partition of a partition is truncated": ["TRUNCATE shop.t_1b"],
    "a partitioned partition is truncated": ["TRUNCATE shop.t_1"],
    "a partition is attached with rows": [
        "CREATE TABLE shop.new (LIKE shop.t INCLUDING ALL)",
        "INSERT INTO shop.new VALUES (301, 1, 'x'), (302, 2, 'y')",
        "ALTER TABLE shop.t ATTACH PARTITION shop.new FOR VALUES FROM (300) TO (400)",
    ],
    "a tree of partitions is attached with rows": [
        "CREATE TABLE shop.new (LIKE shop.t INCLUDING ALL) PARTITION BY RANGE (id)",
        "CREATE TABLE shop.new_a PARTITION OF shop.new DEFAULT",
        "INSERT INTO shop.new VALUES (301, 1, 'x'), (302, 2, 'y')",
        "ALTER TABLE shop.t ATTACH PARTITION shop.new FOR VALUES FROM (300) TO (400)",
    ],
    "a partition is detached": ["ALTER TABLE shop.t DETACH PARTITION shop.t_0"],
    "a partition is detached concurrently": [
        "ALTER TABLE shop.t DETACH PARTITION shop.t_0 CONCURRENTLY"
    ],
    "a partitioned partition is detached": ["ALTER TABLE shop.t DETACH PARTITION shop.t_1"],
    "a partition is dropped": ["DROP TABLE shop.t_2"],
    "a partition is changed while it is detached": [
        "ALTER TABLE shop.t DETACH PARTITION shop.t_0;"
        "UPDATE shop.t_0 SET n = 1000; DELETE FROM shop.t_0 WHERE id < 9;"
        "ALTER TABLE shop.t ATTACH PARTITION shop.t_0 FOR VALUES FROM (0) TO (100)"
    ],
    "a partition's partition is changed while its own is detached": [
        "ALTER TABLE shop.t DETACH PARTITION shop.t_1;"
        "UPDATE shop.t_1 SET n = 1000;"
        "ALTER TABLE shop.t ATTACH PARTITION shop.t_1 FOR VALUES FROM (100) TO (200)"
    ],
    "another partition takes the place of one": [
        "ALTER TABLE shop.t DETACH PARTITION shop.t_0;"
        "CREATE TABLE shop.new PARTITION OF shop.t FOR VALUES FROM (0) TO (100);"
        "INSERT INTO shop.t VALUES (3, 3, 'z')"
    ],
    "a partition has another identity for a while": [
        "UPDATE shop.t SET n = id",
        "ALTER TABLE shop.t_0 ALTER n SET NOT NULL",
        "CREATE UNIQUE INDEX t_n ON shop.t_0 (n)",
        "ALTER TABLE shop.t_0 REPLICA IDENTITY USING INDEX t_n;"
        "UPDATE shop.t SET id = 9 WHERE id = 15;"
        "ALTER TABLE shop.t_0 REPLICA IDENTITY DEFAULT",
    ],
    "a partition has another identity for deletes": [
        "UPDATE shop.t SET n = id",
        "ALTER TABLE shop.t_0 ALTER n SET NOT NULL",
        "CREATE UNIQUE INDEX t_n ON shop.t_0 (n)",
        "ALTER TABLE shop.t_0 REPLICA IDENTITY USING INDEX t_n;"
        "DELETE FROM shop.t WHERE id < 30;"
        "ALTER TABLE shop.t_0 REPLICA IDENTITY DEFAULT",
    ],
    "a partition comes and goes": [
        "CREATE TABLE shop.new PARTITION OF shop.t FOR VALUES FROM (300) TO (400)",
        "INSERT INTO shop.t VALUES (301, 1, 'x'), (302, 2, 'y')",
        "DROP TABLE shop.new",
    ],
    "a partition is emptied before it is known": [
        "CREATE TABLE shop.new PARTITION OF shop.t FOR VALUES FROM (300) TO (400)",
        "INSERT INTO shop.t VALUES (301, 1, 'x'), (302, 2, 'y')",
        "TRUNCATE shop.new",
    ],
    "a column of all partitions gets another type": [
        "ALTER TABLE shop.t ALTER n TYPE bigint USING n * 2"
    ],
    "a column is added with a value": ["ALTER TABLE shop.t ADD more int DEFAULT 5"],
}


def in_turn(cases: Iterable[str]) -> pytest.MarkDecorator:
    """Mark a test of all cases. ``make test`` has each second one while the source runs, the others
    while it is away; ``make test-all`` has each in both ways.
    """
    both = [
        pytest.param(
            what,
            running,
            id=f"{what}-while it {'runs' if running else 'is away'}",
            marks=() if running == bool(number % 2) else pytest.mark.slow,
        )
        for number, what in enumerate(cases)
        for running in (True, False)
    ]
    return pytest.mark.parametrize(("what", "running"), both)


async def see(postgres: PostgreSQL, statements: Sequence[str], *, running: bool) -> None:
    make_tables(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as source:
        await source.settle()
        assert list(target.rows) == ["other", "t"]
        if running:
            postgres.execute(*statements)
            await wait_until_equal(source)
    if not running:
        postgres.execute(*statements)
        async with following(postgres, target) as source:
            await wait_until_equal(source)


async def wait_until_equal(source: Running) -> None:
    if source.server.rows("SELECT FROM pg_attribute WHERE attname = 'more'"):
        await source.wait_until_equal("t", "SELECT id, n, note, more FROM shop.t")
    else:
        await still_follows(source)


@in_turn(STREAMED)
async def test_what_the_stream_has_is_not_copied_again(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture, what: str, running: bool
) -> None:
    await see(postgres, STREAMED[what], running=running)
    assert "copied again" not in caplog.text


@in_turn(REGROUPED)
async def test_rows_that_come_or_go_with_a_partition(
    postgres: PostgreSQL, what: str, running: bool
) -> None:
    """The stream has nothing of them."""
    await see(postgres, REGROUPED[what], running=running)


async def test_partitions_change_while_the_table_is_copied(
    postgres: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk finds it out, without another look."""
    monkeypatch.setattr(follower, "LOOK_S", 600.0)
    make_tables(postgres)
    done: list[SourceRow | str] = []

    def interfere(step: SourceRow | str) -> None:
        if not done and len(plain(target.rows.get("t", {}))) >= 4:
            done.append(step)
            postgres.execute(
                "CREATE TABLE shop.new (LIKE shop.t INCLUDING ALL)",
                "INSERT INTO shop.new VALUES (-1, 1, 'x')",
                "ALTER TABLE shop.t ATTACH PARTITION shop.new FOR VALUES FROM (-10) TO (0)",
                "TRUNCATE shop.t_0",
            )

    target = MemoryTarget()
    target.fate = interfere
    async with following(postgres, target, chunk_rows=2) as running:
        await still_follows(running)
    assert done


UNFIT: Mapping[str, tuple[Sequence[str], str, Sequence[str]]] = {
    "no identity": (
        ["ALTER TABLE shop.t_1a REPLICA IDENTITY NOTHING"],
        "of its partition shop.t_1a is NOTHING",
        ["ALTER TABLE shop.t_1a REPLICA IDENTITY DEFAULT"],
    ),
    "a full identity": (
        ["ALTER TABLE shop.t_1a REPLICA IDENTITY FULL", "DELETE FROM shop.t WHERE id = 106"],
        "shop.t_1a has another REPLICA IDENTITY",
        ["ALTER TABLE shop.t_1a REPLICA IDENTITY DEFAULT"],
    ),
    "another identity": (
        [
            "UPDATE shop.t SET n = id",
            "ALTER TABLE shop.t_0 ALTER n SET NOT NULL",
            "CREATE UNIQUE INDEX t_n ON shop.t_0 (n)",
            "ALTER TABLE shop.t_0 REPLICA IDENTITY USING INDEX t_n",
            "DELETE FROM shop.t WHERE id = 8",
            "UPDATE shop.t SET id = 9 WHERE id = 15",
        ],
        "shop.t_0 has another REPLICA IDENTITY",
        ["ALTER TABLE shop.t_0 REPLICA IDENTITY DEFAULT"],
    ),
    "an unlogged partition": (
        ["CREATE UNLOGGED TABLE shop.u PARTITION OF shop.t FOR VALUES FROM (300) TO (400)"],
        "partition shop.u is unlogged",
        ["ALTER TABLE shop.u SET LOGGED"],
    ),
}


@in_turn(UNFIT)
async def test_a_partition_that_can_not_be_followed(
    postgres: PostgreSQL, what: str, running: bool
) -> None:
    """The table fails, the others flow; once it fits it is right again."""
    statements, why, remedy = UNFIT[what]
    make_tables(postgres)
    target = MemoryTarget()
    async with following(postgres, target) as source:
        await source.settle()
        if running:
            postgres.execute(*statements)
            await fails(source, why, remedy)
    if not running:
        postgres.execute(*statements)
        async with following(postgres, target) as source:
            await fails(source, why, remedy)


async def fails(source: Running, why: str, remedy: Sequence[str]) -> None:
    await source.wait_until_failed("shop.t", why)
    source.server.execute("INSERT INTO shop.other VALUES (2, 2)")
    await source.wait_until_equal("other", "SELECT * FROM shop.other")
    source.server.execute(*remedy)
    await still_follows(source)


PUBLICATION = "rowtide_shop"


async def test_a_publication_that_was_made_by_hand(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    postgres.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.other, shop.t")
    async with following(postgres, MemoryTarget()) as running:
        state = await running.wait_until_failed("shop.t", "has each partition as a table")
        assert "shop.t_0" not in running.states()
        postgres.execute("DELETE FROM shop.t WHERE id < 20", state.remedy[4:].split(";")[0])
        await still_follows(running)


async def test_the_connectors_publication_gets_the_option_again(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        postgres.execute(
            f"ALTER PUBLICATION {PUBLICATION} SET (publish_via_partition_root = false)",
            "DELETE FROM shop.t WHERE id < 20",
        )
        await still_follows(running)


@pytest.mark.parametrize("of", ["FOR ALL TABLES", "FOR TABLES IN SCHEMA shop", "FOR TABLE shop.t"])
async def test_a_partition_whose_changes_have_another_name(postgres: PostgreSQL, of: str) -> None:
    make_tables(postgres)
    option = "publish_via_partition_root"
    postgres.execute(f"CREATE PUBLICATION {PUBLICATION} {of} WITH ({option} = true)")
    tables = ["shop.t_0", "shop.other"]
    async with following(postgres, MemoryTarget(), tables=tables) as running:
        state = await running.wait_until_failed("shop.t_0", "as those of shop.t")
        assert "Name shop.t under 'tables'" in state.remedy
        await running.wait_until_equal("other", "SELECT * FROM shop.other")


NAMED: Mapping[str, tuple[Mapping[str, Sequence[str]], Sequence[str]]] = {
    "partitions": ({"tables": ["shop.t_*"]}, ["t_0", "t_1", "t_2"]),
    "one partition": ({"tables": ["shop.t_0"]}, ["t_0"]),
    "a partition of a partition": ({"tables": ["shop.t_1a"]}, ["t_1a"]),
    "all but the table": ({"tables": ["shop.t*"], "except": ["shop.t"]}, ["t_0", "t_1", "t_2"]),
    "the table": ({"tables": ["shop.t"]}, ["t"]),
    "the table and a partition": ({"tables": ["shop.t", "shop.t_0"]}, ["t"]),
    "the table but a partition": ({"tables": ["shop.t*"], "except": ["shop.t_0"]}, ["t"]),
}


@pytest.mark.parametrize("what", NAMED)
async def test_settings_name_a_table_or_its_partitions(postgres: PostgreSQL, what: str) -> None:
    """Whatever was followed before: a table gets the changes of the partitions from then on."""
    settings, targets = NAMED[what]
    make_tables(postgres)
    before = {"tables": ["shop.t_0"]} if "t" in targets else {"tables": ["shop.t"]}
    for given, names in ((before, ()), (settings, targets)):
        async with following(postgres, MemoryTarget(), **given) as running:
            await running.settle()
            postgres.execute(
                "UPDATE shop.t SET n = n + 1",
                "UPDATE shop.t SET id = id + 1 WHERE id = (SELECT max(id) FROM shop.t_0)",
                "DELETE FROM shop.t WHERE id IN (SELECT min(id) FROM shop.t GROUP BY id / 50)",
            )
            for name in names:
                await running.wait_until_equal(name, f"SELECT id, n, note FROM shop.{name}")
            assert running.lives == 1
            assert not names or sorted(running.target.rows) == names


async def test_a_partition_that_is_detached_is_a_table(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    async with following(postgres, MemoryTarget()) as running:
        await running.settle()
        postgres.execute(
            "ALTER TABLE shop.t DETACH PARTITION shop.t_0", "DELETE FROM shop.t_0 WHERE id < 20"
        )
        await running.wait_until_equal("t_0", "SELECT id, n, note FROM shop.t_0")
        await running.wait_until_equal("t", EACH_ROW)
        postgres.execute(
            "UPDATE shop.t_0 SET n = 3",
            "ALTER TABLE shop.t ATTACH PARTITION shop.t_0 FOR VALUES FROM (0) TO (100)",
            "UPDATE shop.t SET n = n + 2",
        )
        await still_follows(running)


async def test_keys_of_a_partitioned_table(postgres: PostgreSQL) -> None:
    """Such a table has a full identity, as each of its partitions."""
    postgres.execute(
        "CREATE TABLE shop.t (id int NOT NULL UNIQUE, n int, note text) PARTITION BY RANGE (id)",
        "CREATE TABLE shop.t_0 PARTITION OF shop.t FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE shop.t REPLICA IDENTITY FULL",
        "ALTER TABLE shop.t_0 REPLICA IDENTITY FULL",
        "INSERT INTO shop.t SELECT i, i FROM generate_series(1, 99) i",
    )
    async with following(postgres, MemoryTarget(), keys={"shop.t": ["id"]}) as running:
        await running.wait_until_equal("t", EACH_ROW)
        postgres.execute("UPDATE shop.t SET n = -n", "DELETE FROM shop.t WHERE id < 20")
        await running.wait_until_equal("t", EACH_ROW)


async def test_verify_reads_all_partitions(postgres: PostgreSQL) -> None:
    make_tables(postgres)
    postgres.execute("ANALYZE")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.wait_until_equal("t", EACH_ROW)
        assert running.states()["shop.t"].rows_estimate == 43
    side = await source_of(postgres).side("t")
    try:
        rows, cursor = await asyncio.to_thread(side.page, None)
        found = await asyncio.to_thread(side.find_rows, [key for key, _ in rows[::5]])
    finally:
        await side.close()
    assert (dict(rows), cursor) == (target.rows["t"], None)
    assert sorted(found) == sorted(rows[::5])


async def test_a_role_that_may_read_the_table_alone(postgres: PostgreSQL) -> None:
    """It needs no grant for a partition."""
    make_tables(postgres)
    postgres.execute(
        f"CREATE PUBLICATION {PUBLICATION} FOR TABLE shop.t, shop.other"
        " WITH (publish_via_partition_root = true)",
        "DROP ROLE IF EXISTS outsider",
        "CREATE ROLE outsider LOGIN REPLICATION",
        "GRANT USAGE ON SCHEMA shop TO outsider",
        "GRANT SELECT ON shop.t, shop.other TO outsider",
    )
    try:
        async with following(postgres, MemoryTarget(), user="outsider") as running:
            await still_follows(running)
    finally:
        postgres.execute("DROP OWNED BY outsider", "DROP ROLE outsider")
