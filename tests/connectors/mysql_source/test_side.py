"""``verify`` reads a table exactly as a source does."""

from __future__ import annotations

import pytest

from demo.servers.sql_server import SqlServer, numbers
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.source import Repeatable
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Rejected
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import following, plain, source_of

pytestmark = pytest.mark.system


async def test_a_side_has_the_rows_that_the_source_makes(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (name VARCHAR(9), n INT, x FLOAT, b BLOB, PRIMARY KEY (name, n))",
        f"INSERT INTO shop.a SELECT CONCAT('N', seq % 7), seq, seq / 3, NULL FROM {numbers(99)}",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    made = {
        key.encode([variant.encode(value) for _, value in found]): columns
        for found, columns in target.rows["a"].items()
    }
    source = source_of(sql_server, chunk_rows=10)
    side = await source.side("a")
    try:
        assert {encoded: columns async for encoded, columns in side.rows()} == made
        wanted = [*list(made)[:5], key.encode([variant.encode("n1"), variant.encode(1)])]
        assert await side.look_up(wanted) == {encoded: made[encoded] for encoded in wanted[:5]}
    finally:
        await side.close()
    with pytest.raises(SettingsRefused, match="No table of the source becomes b"):
        await source.side("b")


async def test_a_table_that_was_removed_from_rowtide_is_copied_again(
    sql_server: SqlServer,
) -> None:
    """Once it was created again, empty, and got only later changes."""
    sql_server.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    sql_server.execute("INSERT INTO shop.a VALUES (1, 10), (2, 20)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    target.remove("a")
    sql_server.execute("INSERT INTO shop.a VALUES (3, 30)")
    async with following(sql_server, target) as running:
        await running.settle()
    assert plain(target.rows["a"]) == {(1,): {"x": 10}, (2,): {"x": 20}, (3,): {"x": 30}}


async def test_a_source_that_begins_again_finds_what_went_astray(sql_server: SqlServer) -> None:
    sql_server.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    sql_server.execute("INSERT INTO shop.a VALUES (1, 10), (2, 20), (3, 30)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    del target.rows["a"][(("id", 1),)]
    target.rows["a"][(("id", 2),)] = {"x": 0}
    target.rows["a"][(("id", 4),)] = {"x": 40}
    source = source_of(sql_server)
    assert isinstance(source, Repeatable)
    target.kept = source.begin_again(target.kept)
    async with following(sql_server, target) as running:
        await running.settle()
    assert plain(target.rows["a"]) == {(1,): {"x": 10}, (2,): {"x": 20}, (3,): {"x": 30}}


async def test_one_table_is_copied_again_and_the_others_stay(sql_server: SqlServer) -> None:
    for name in ("a", "b", "c"):
        sql_server.execute(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, x INT)")
        sql_server.execute(f"INSERT INTO shop.{name} VALUES (1, 10), (2, 20)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    source = source_of(sql_server)
    assert isinstance(source, Repeatable)
    with pytest.raises(Rejected, match=r"no table shop\.x; it follows shop\.a, shop\.b, shop\.c"):
        source.begin_again(target.kept, ["shop.x"])
    for name in ("a", "b", "c"):
        target.rows[name][(("id", 1),)] = {"x": 0}
        target.rows[name][(("id", 9),)] = {"x": 9}
    target.kept = source.begin_again(target.kept, ["shop.a", "c"])
    async with following(sql_server, target) as running:
        for name in ("a", "b", "c"):
            sql_server.execute(f"INSERT INTO shop.{name} VALUES (3, 30)")
        await running.settle()
    copied = {(1,): {"x": 10}, (2,): {"x": 20}, (3,): {"x": 30}}
    assert plain(target.rows["a"]) == plain(target.rows["c"]) == copied
    assert plain(target.rows["b"]) == copied | {(1,): {"x": 0}, (9,): {"x": 9}}
