"""What a source will not follow, and what it says then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from demo.servers.postgres import HOST, PostgreSQL
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import SOURCES, ConnectorContext, make_source
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings, parse_settings
from rowtide.core.values.errors import Unavailable
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.conftest import MakeServer
from tests.connectors.postgres.following import following, source_of
from tests.connectors.running_source import WAIT_S

GIVEN = {"host": "db", "user": "u", "database": "shop", "tables": ["public.*"]}


def settings(connector: str = "orders", **given: Any) -> PostgresSourceSettings:
    return parse_settings(Fields({**GIVEN, **given}, "source"), connector)


def test_settings_have_defaults() -> None:
    found = settings(names={"public.a": "b"})
    assert (found.port, found.slot, found.publication, found.tls) == (
        *(5432, "rowtide_orders", "rowtide_orders", "prefer"),
    )
    assert found.target("public", "a") == "b"
    assert found.target("public", "c") == "c"
    assert found.wants("public.c")
    assert not found.wants("other.c")


def test_connectors_have_slots_of_their_own() -> None:
    slots = {settings(name).slot for name in ("a-b", "a_b", "A_b", "a" * 60, "a" * 61)}
    assert len(slots) == 5
    assert all(len(slot) <= 63 for slot in slots)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tables": []}, "must name tables"),
        ({"tables": ["orders"]}, "as schema.table"),
        ({"slot": "Mine"}, "slot must have"),
        ({"tls": "maybe"}, "must be one of"),
        ({"names": {"other.c": "c"}}, "names has 'other.c', but the source follows no such table"),
        ({"names": {"public.c": "1"}}, "names.public.c must be 1 to 255 letters"),
        ({"keys": {"other.c": ["a"]}}, "keys has 'other.c', but the source follows no such table"),
        ({"except": ["orders"]}, "except must name tables as schema.table"),
        ({"except": ["public.c"], "names": {"public.c": "d"}}, "follows no such table"),
        ({"chunk_rows": 0}, r"in \[1, 100000\]"),
    ],
)
def test_settings_that_are_refused(given: Mapping[str, Any], why: str) -> None:
    with pytest.raises(SettingsRefused, match=why):
        settings(**given)


def test_the_registry_makes_the_source() -> None:
    assert "postgres" in SOURCES
    make_source(Fields({"kind": "postgres", **GIVEN}, "source"), ConnectorContext("orders", ""))


SERVERS: Mapping[str, tuple[Sequence[str], str]] = {
    "deletes left out": (
        [
            "CREATE TABLE shop.t (a int PRIMARY KEY)",
            "CREATE PUBLICATION rowtide_shop FOR TABLE shop.t WITH (publish = 'insert, update')",
        ],
        "must publish insert, update, delete, truncate",
    ),
    "another's slot": (
        ["SELECT pg_create_logical_replication_slot('rowtide_shop', 'test_decoding')"],
        "is not one of pgoutput",
    ),
}


@pytest.mark.system
@pytest.mark.parametrize("what", SERVERS)
async def test_what_can_not_be_followed_is_refused(postgres: PostgreSQL, what: str) -> None:
    statements, why = SERVERS[what]
    postgres.execute(*statements)
    with pytest.raises(SettingsRefused, match=why):
        async with asyncio.timeout(WAIT_S):
            await source_of(postgres, tables=["shop*.*"]).run(MemoryTarget())


@pytest.mark.system
async def test_a_role_is_told_all_that_it_lacks_at_once(postgres: PostgreSQL) -> None:
    postgres.execute(
        "CREATE TABLE shop.a (a int PRIMARY KEY)",
        'CREATE TABLE shop."B" (a int PRIMARY KEY)',
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
    )
    source = source_of(postgres, user="reader")
    try:
        with pytest.raises(SettingsRefused) as refused:
            await source.run(MemoryTarget())
        statements = (
            'ALTER ROLE "reader" REPLICATION;',
            'GRANT CREATE ON DATABASE "shop" TO "reader";',
            'GRANT USAGE ON SCHEMA "shop" TO "reader";',
            'GRANT SELECT ON "shop"."a" TO "reader";',
            'GRANT SELECT ON "shop"."B" TO "reader";',
            'ALTER TABLE "shop"."a" OWNER TO "reader";',
            'ALTER TABLE "shop"."B" OWNER TO "reader";',
        )
        for statement in statements:
            assert str(refused.value).count(statement) == 1
        postgres.execute(*statements)
        async with following(postgres, MemoryTarget(), user="reader") as running:
            await running.settle()
            assert {state.state for state in running.states().values()} == {"following"}
    finally:
        postgres.drop_slots()
        postgres.execute("DROP OWNED BY reader CASCADE", "DROP ROLE reader")


@pytest.mark.system
async def test_a_publication_that_an_administrator_made(postgres: PostgreSQL) -> None:
    """The role needs no more than to read and to replicate."""
    postgres.execute(
        "CREATE TABLE shop.a (a int PRIMARY KEY)",
        "CREATE PUBLICATION rowtide_shop FOR TABLE shop.a",
        "DROP ROLE IF EXISTS reader",
        "CREATE ROLE reader LOGIN",
        "CREATE ROLE rds_replication",
        "GRANT USAGE ON SCHEMA shop TO reader",
        "GRANT SELECT ON shop.a TO reader",
    )
    try:
        with pytest.raises(SettingsRefused) as refused:
            await source_of(postgres, user="reader").run(MemoryTarget())
        assert "must have REPLICATION" in str(refused.value)
        assert "CREATE ON DATABASE" not in str(refused.value)
        assert "single tables" not in str(refused.value)
        # As on Amazon RDS; this server asks for the attribute as well, once it is streamed from.
        postgres.execute("GRANT rds_replication TO reader")
        with pytest.raises(Unavailable):
            await source_of(postgres, user="reader").run(MemoryTarget())
        postgres.execute("ALTER ROLE reader REPLICATION")
        async with following(postgres, MemoryTarget(), user="reader") as running:
            await running.settle()
    finally:
        postgres.drop_slots()
        postgres.execute(
            "DROP OWNED BY reader CASCADE", "DROP ROLE reader", "DROP ROLE rds_replication"
        )


@pytest.mark.system
async def test_a_server_that_does_not_log_enough(make_postgres: MakeServer) -> None:
    server = make_postgres("wal_level=replica")
    with pytest.raises(SettingsRefused, match="wal_level is replica; it must be logical"):
        await source_of(server).run(MemoryTarget())


@pytest.mark.system
async def test_a_server_that_is_not_there() -> None:
    given = {**GIVEN, "host": HOST, "port": 1}
    source = make_source(Fields({"kind": "postgres", **given}, "source"), ConnectorContext("x", ""))
    with pytest.raises(Unavailable, match="Connection refused"):
        await source.run(MemoryTarget())


@pytest.mark.system
async def test_a_slot_that_another_process_reads_is_waited_for(postgres: PostgreSQL) -> None:
    postgres.execute("CREATE TABLE shop.t (a int PRIMARY KEY)")
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        with pytest.raises(Unavailable, match="is active for PID"):
            await source_of(postgres).run(target)


async def test_a_pattern_that_no_table_fits_is_warned_of(
    postgres: PostgreSQL, caplog: pytest.LogCaptureFixture
) -> None:
    postgres.execute("CREATE TABLE shop.orders (id int PRIMARY KEY)")
    target = MemoryTarget()
    async with following(postgres, target, tables=["shop.orders", "shop.oders"]) as running:
        await running.settle()
    assert [text for text in caplog.messages if "no table" in text] == [
        "no table at the source matches shop.oders"
    ]
