"""A snapshot while others write, and the source, the target or the server fails in the middle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from demo.servers.sql_server import SqlServer, numbers
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources import chunk_size
from rowtide.connectors.sources.mysql.gtids import Gtids
from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.snapshot import MySqlChunk, Snapshots
from rowtide.core.values.errors import OutcomeUnknown, Rejected
from tests.connectors.memory_target import Crash, MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, plain
from tests.connectors.mysql_source.shop_writer import ShopWriter, make_shop

pytestmark = pytest.mark.system

ROWS = 600


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
async def test_what_is_copied_while_others_write_is_the_same_through_crashes(
    sql_server: SqlServer, seed: int
) -> None:
    make_shop(sql_server, ROWS)
    target = MemoryTarget()
    target.fate = _failures(random.Random(seed))
    writer = ShopWriter(sql_server, seed=seed, rows=ROWS, changes=1500)
    try:
        async with following(sql_server, target, chunk_rows=40) as running:
            await running.until(lambda: writer.done, "the writer is done")
            target.fate = lambda step: None
            await running.settle()
            assert running.lives > 1, "there were crashes"
    finally:
        writer.finish()
    _compare(sql_server, target)
    _check_order(target)


async def test_rows_that_are_copied_again_amid_changes_never_go_back(sql_server: SqlServer) -> None:
    make_shop(sql_server, ROWS)
    target, chance, copied = MemoryTarget(), random.Random(7), 0
    writer = ShopWriter(sql_server, seed=7, rows=ROWS)
    try:
        async with following(sql_server, target, chunk_rows=40) as running:
            while copied <= 10 or writer.tried < 1500:
                copied += await running.copy_again("numbers", chance.randrange(ROWS * 2))
            await asyncio.to_thread(writer.finish)
            await running.settle()
            with pytest.raises(Rejected, match="No table of the source becomes other now"):
                await running.copy_again("other", 1)
    finally:
        writer.finish()
    assert target.skipped == 0
    _compare(sql_server, target)
    _check_order(target)


async def test_a_killed_server_goes_on_where_it_was(make_server_slow: MakeServer) -> None:
    server = make_server_slow()
    server.execute("CREATE DATABASE shop")
    make_shop(server, ROWS)
    target = MemoryTarget()
    writer = ShopWriter(server, seed=1, rows=ROWS)
    try:
        async with following(server, target, chunk_rows=40) as running:
            for goal in (100, 1500):
                await running.until(lambda: len(target.made) > goal, f"{goal} rows")  # noqa: B023
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await running.until(lambda: writer.tried >= 2500, "enough was written")
            await asyncio.to_thread(writer.finish)
            await running.settle()
            assert running.lives > 1, "the server was missed"
    finally:
        writer.finish()
    _compare(server, target)
    _check_order(target)


async def test_a_source_that_stops_and_starts_repeats_nothing(sql_server: SqlServer) -> None:
    make_shop(sql_server, ROWS)
    target = MemoryTarget()
    for seed in range(3):
        async with following(sql_server, target) as running:
            writer = ShopWriter(sql_server, seed=seed, rows=ROWS, changes=200)
            await running.until(lambda: writer.done, "the writer is done")  # noqa: B023
            await running.settle()
    assert target.skipped == 0
    _compare(sql_server, target)


async def test_a_chunk_stays_within_its_bytes(
    mariadb: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_size, "CHUNK_BYTES", 10_000)
    sizes: list[int] = []
    chunk = Snapshots.chunk

    def measure_chunk(self: Snapshots, table: MySqlTable, cursor: Any, before: Gtids) -> MySqlChunk:
        made = chunk(self, table, cursor, before)
        sizes.append(sum(len(str((row.columns or {})["x"])) for row in made.rows))
        return made

    monkeypatch.setattr(Snapshots, "chunk", measure_chunk)
    mariadb.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x MEDIUMTEXT)",
        f"INSERT INTO shop.a SELECT seq, REPEAT('x', IF(seq % 50, 10, 9000)) FROM {numbers(700)}",
    )
    target = MemoryTarget()
    async with following(mariadb, target) as running:
        await running.settle()
    assert len(target.rows["a"]) == 700
    assert len(target.made) == 700, "each was copied once"
    assert max(sizes) < 10_000 + 9000


def _failures(chance: random.Random) -> Callable[[SourceRow | str], None]:
    def fate(step: SourceRow | str) -> None:
        del step
        if chance.random() < 1 / 900:
            raise chance.choice([Crash(), OutcomeUnknown("The log did not answer.")])

    return fate


def _compare(server: SqlServer, target: MemoryTarget) -> None:
    numbers = server.rows("SELECT id, v, note FROM shop.numbers")
    names = server.rows("SELECT name, part, v FROM shop.names")
    assert plain(target.rows["numbers"]) == {
        (key,): {"v": v} | ({} if note is None else {"note": note}) for key, v, note in numbers
    }
    assert plain(target.rows["names"]) == {(name, part): {"v": v} for name, part, v in names}


def _check_order(target: MemoryTarget) -> None:
    """No row ever went back to what it was before."""
    newest: dict[object, int] = {}
    for row in target.made:
        if row.columns is not None and "v" in row.columns:
            number, place = row.columns["v"], (row.table, row.key)
            assert isinstance(number, int)
            assert number >= newest.get(place, 0), row
            newest[place] = number


STRANGE = {
    "DECIMAL(9,2)": ("abc", "1) OR (1 = 1", "1.50", "1e2", ""),
    "DATE": ("not a date", "2024-02-31", "0000-00-00", "2024-01-01x"),
    "DATETIME(3)": ("never", "2024-01-01 00:00:00"),
    "TIME": ("noon", "900:00:00"),
    "TIMESTAMP": ("never", "9999-01-01 00:00:00"),
    "TINYINT": (2**62, -1, 300),
    "BIT(5)": (-1, 2**40),
    "BIGINT UNSIGNED": (-5,),
    "VARCHAR(9) CHARACTER SET latin1": ("\u65e5\u672c", "x" * 900, "\0"),
    "VARBINARY(9)": (b"x" * 900,),
}


@pytest.mark.parametrize("declared", STRANGE)
async def test_rows_whose_keys_no_row_can_have_go_with_those_that_are_gone(
    sql_server: SqlServer, declared: str
) -> None:
    """Such keys were once put into a statement as they were, or ended each life of the source."""
    sql_server.execute(f"CREATE TABLE shop.a (k {declared} PRIMARY KEY, x INT)")
    target = MemoryTarget()
    target.rows["a"] = {(("k", value),): {"x": 1} for value in STRANGE[declared]}
    async with following(sql_server, target) as running:
        await running.settle()
        assert plain(target.rows["a"]) == {}
        assert running.lives == 1
