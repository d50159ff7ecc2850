"""What every kind of source keeps: one in memory, MariaDB, MySQL and PostgreSQL alike.

A source of a new kind gets a world in ``worlds.py`` and a line in ``SQL_WORLDS``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.copying.engine import CopyEngine
from rowtide.core.values.errors import OutcomeUnknown, Rejected
from tests.connectors.memory_target import Crash, MemoryTarget
from tests.connectors.running_source import beside, check_lag
from tests.connectors.source_contract.memory_source import Change
from tests.connectors.source_contract.worlds import (
    MemoryWorld,
    MySqlWorld,
    PostgresWorld,
    RandomWriter,
    SourceWorld,
)

SQL_WORLDS: dict[str, Callable[[Any], SourceWorld]] = {
    "mariadb": MySqlWorld,
    "mysql": MySqlWorld,
    "postgres": PostgresWorld,
}
WORLDS = ["memory", *(pytest.param(kind, marks=pytest.mark.system) for kind in SQL_WORLDS)]
ROWS = 300

Engine = CopyEngine[Any, Any, Any, Any, Any]


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> SourceWorld:
    """A server without tables, of each kind."""
    if request.param == "memory":
        return MemoryWorld()
    # By hand, not as a fixture of this test: the source in memory needs no server.
    return SQL_WORLDS[request.param](request.getfixturevalue(request.param))


def make_tables(world: SourceWorld) -> None:
    for table in ("a", "b"):
        world.make_table(table, dict.fromkeys(range(0, ROWS * 2, 2), 0))


async def test_copies_amid_changes_end_equal_through_crashes(world: SourceWorld, seed: int) -> None:
    make_tables(world)
    target = MemoryTarget()
    target.fate = failing(random.Random(seed))
    writer = RandomWriter(world, ("a", "b"), seed=seed, keys=ROWS * 2, transactions=300)
    try:
        async with beside(world.running(target)) as running:
            await running.until(lambda: writer.is_done, "the writer is done")
            await running.until(lambda: running.lives > 1, "there were crashes")
            target.fate = lambda step: None
            await running.settle()
    finally:
        writer.finish()
    check_equal(world, target, "a", "b")
    check_order(target)


async def test_a_source_that_stops_and_starts_repeats_nothing(world: SourceWorld) -> None:
    make_tables(world)
    target = MemoryTarget()
    for seed in range(3):
        writer = RandomWriter(world, ("a", "b"), seed=seed, keys=ROWS * 2, transactions=30)
        try:
            async with beside(world.running(target)) as running:
                await running.until(lambda: writer.is_done, "the writer is done")  # noqa: B023
                await running.settle()
        finally:
            writer.finish()
    assert target.skipped == 0
    check_equal(world, target, "a", "b")


async def test_rows_that_are_copied_again_amid_changes_never_go_back(world: SourceWorld) -> None:
    make_tables(world)
    target, chance, copied = MemoryTarget(), random.Random(7), 0
    writer = RandomWriter(world, ("a",), seed=7, keys=ROWS * 2, transactions=150)
    try:
        async with beside(world.running(target)) as running:
            while not writer.is_done or copied < 5:
                copied += await running.copy_again("a", chance.randrange(ROWS * 2))
            await running.settle()
            with pytest.raises(Rejected, match="No table of the source becomes other now"):
                await running.copy_again("other", 1)
            with pytest.raises(Rejected, match="No table of the source becomes a now"):
                await running.copy_again("a", 1, 2)
    finally:
        writer.finish()
    assert target.skipped == 0
    check_equal(world, target, "a", "b")
    check_order(target)


async def test_a_table_that_is_copied_again_loses_the_rows_that_are_gone(
    world: SourceWorld,
) -> None:
    make_tables(world)
    target = MemoryTarget()
    async with beside(world.running(target)) as running:
        await running.settle()
    stray = (("id", 10**6),)
    for table in ("a", "b"):
        target.rows[table][stray] = {"v": 1}
    del target.rows["a"][(("id", 0),)]
    world.begin_again(target, "a")
    async with beside(world.running(target)) as running:
        await running.settle()
    assert stray in target.rows["b"], "only one table was copied again"
    del target.rows["b"][stray]
    check_equal(world, target, "a", "b")
    with pytest.raises(Rejected, match="follows no table c"):
        world.begin_again(target, "c")


async def test_changes_behind_a_chunk_are_written_after_it(
    world: SourceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {1: 99, 3: 30, 4: 40}
    assert await overtaken(world, "a", monkeypatch) == expected
    # The control: with the order broken, this very comparison finds the difference.
    assert await overtaken(world, "b", monkeypatch, is_hasty=True) != expected


def rows_of(piece: Any) -> Any:
    return piece.changes if hasattr(piece, "changes") else piece.rows


async def overtaken(
    world: SourceWorld, table: str, monkeypatch: pytest.MonkeyPatch, *, is_hasty: bool = False
) -> dict[int, int]:
    """Return what is copied where rows change between a chunk's reading and its writing."""
    world.make_table(table, {1: 10, 2: 20, 3: 30})
    changes: list[Change] = [(table, 4, 40), (table, 1, 99), (table, 2, None)]
    read, follow = CopyEngine._next_chunk, CopyEngine._follow
    due = [True] * is_hasty

    async def with_changes(self: Engine, read_table: Any, cursor: Any) -> Any:
        chunk = await read(self, read_table, cursor)
        if chunk is None or read_table.target != table or not changes:
            return chunk
        while changes:
            world.commit(changes.pop())
        while sum(len(rows_of(piece)) for piece in self._backlog.pieces) < 3:
            await self._backlog.fill(1.0)
        return chunk

    async def hasty(self: Engine, moment: Any) -> bool:
        if changes or not due:
            return await follow(self, moment)
        due.clear()
        await self._write_pieces(None)
        return True

    target = MemoryTarget()
    with monkeypatch.context() as patch:
        patch.setattr(CopyEngine, "_next_chunk", with_changes)
        patch.setattr(CopyEngine, "_follow", hasty)
        async with beside(world.running(target)) as running:
            await running.settle()
            await running.settle()  # What was changed amid the copy is known to the server now.
    return plain(target, table)


async def test_a_source_knows_how_far_it_is_behind(world: SourceWorld) -> None:
    make_tables(world)
    target = MemoryTarget()
    async with beside(world.running(target)) as running:
        await running.settle()
        await check_lag(running, lambda: world.commit(("a", 1, 1)))


async def test_a_removed_and_a_made_row_of_one_transaction_end_right(world: SourceWorld) -> None:
    make_tables(world)
    target = MemoryTarget()
    async with beside(world.running(target)) as running:
        await running.settle()
        world.commit(("a", 0, None), ("a", 0, 5), ("b", 0, 6), ("b", 0, None))
        await running.settle()
    assert plain(target, "a")[0] == 5
    check_equal(world, target, "a", "b")


def failing(chance: random.Random) -> Callable[[SourceRow | str], None]:
    """Return a fate that ends a life now and then, the first time while tables are copied."""
    left = [chance.randrange(ROWS)]

    def fate(step: SourceRow | str) -> None:
        del step
        left[0] -= 1
        if left[0] < 0:
            left[0] = chance.randrange(ROWS * 3)
            raise chance.choice([Crash(), OutcomeUnknown("The log did not answer.")])

    return fate


def plain(target: MemoryTarget, table: str) -> dict[int, int]:
    """Return the rows of rowtide's table as the server has them."""
    found: Any = target.rows[table]
    return {key[0][1]: columns["v"] for key, columns in found.items()}


def check_equal(world: SourceWorld, target: MemoryTarget, *tables: str) -> None:
    for table in tables:
        assert plain(target, table) == world.rows(table)


def check_order(target: MemoryTarget) -> None:
    """No row ever went back to what it was before."""
    newest: dict[object, int] = {}
    for row in target.made:
        if row.columns is not None:
            value, place = row.columns["v"], (row.table, row.key)
            assert isinstance(value, int)
            assert value >= newest.get(place, 0), row
            newest[place] = value
