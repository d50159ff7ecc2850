"""What the copy engine does with what a seam reports, shown by the source in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.seam import CopyChunk, TableUnread
from rowtide.core.values.errors import Unavailable
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.running_source import beside
from tests.connectors.source_contract import memory_source
from tests.connectors.source_contract.memory_source import (
    MemoryFollower,
    MemoryReader,
    MemoryTable,
    NumberMoment,
    NumbersCheckpoint,
)
from tests.connectors.source_contract.worlds import CHUNK_ROWS, MemoryWorld
from tests.support.waiting import until_async

ROWS = CHUNK_ROWS * 3
WRONG = (("id", 10**6),)

Read = CopyChunk[NumberMoment, tuple[int, int]] | None


@pytest.fixture
def world() -> MemoryWorld:
    """Two tables, each of three chunks."""
    made = MemoryWorld()
    for table in ("a", "b"):
        made.make_table(table, {key: key for key in range(ROWS)})
    return made


def plain(target: MemoryTarget, table: str) -> dict[Any, Any]:
    return {key[0][1]: (row or {})["v"] for key, row in target.rows[table].items()}


async def test_a_read_that_is_too_early_is_made_again(world: MemoryWorld) -> None:
    target = MemoryTarget()
    world.server.too_early = 3
    async with beside(world.running(target)) as running:
        await running.settle()
        world.server.too_early = 2
        assert await running.copy_again("a", 1)
    assert world.server.too_early == 0
    assert plain(target, "a") == world.rows("a")


async def test_the_log_is_followed_while_reads_are_too_early(world: MemoryWorld) -> None:
    target = MemoryTarget()
    world.server.too_early = 10**6
    async with beside(world.running(target)) as running:
        await running.until(lambda: world.server.too_early < 10**6 - 1, "a read was too early")
        world.commit(("a", 7, 70))
        await running.until(lambda: bool(target.rows.get("a")), "the change is there")
        assert plain(target, "a") == {7: 70}
        world.server.too_early = 0
        await running.settle()
    assert plain(target, "a") == world.rows("a")


async def test_a_table_that_is_not_read_stops_no_other(world: MemoryWorld) -> None:
    target = MemoryTarget()
    world.server.unreadable.add("a")
    async with beside(world.running(target)) as running:
        await running.until(lambda: len(target.rows.get("b", ())) == ROWS, "b is copied")
    assert target.rows["a"] == {}
    kept = NumbersCheckpoint.parse(target.kept)
    assert (kept.tables["a"].copied, kept.tables["b"].copied) == (False, True)


async def test_a_chunk_is_not_written_if_its_table_changes_on_the_way_to_it(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryTarget()
    read = MemoryReader.read_chunk
    emptied: list[str] = []

    async def emptying(self: MemoryReader, table: MemoryTable, cursor: list[str] | None) -> Read:
        if cursor is None or table.full_name != "a" or emptied:
            return await read(self, table, cursor)
        emptied.append(table.full_name)
        world.commit(("a", 2, 22))
        world.server.commit(("a", 1, 11), emptied="a")
        return with_a_wrong_row(await read(self, table, cursor))

    monkeypatch.setattr(MemoryReader, "read_chunk", emptying)
    async with beside(world.running(target)) as running:
        await running.settle()
        await running.settle()  # The transaction that came meanwhile is known by now.
    assert emptied
    assert WRONG not in [row.key for row in target.made]
    assert plain(target, "a") == {1: 11}


async def test_a_chunk_that_was_read_ahead_is_dropped_if_its_table_changes(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryTarget()
    ahead = wrong_ahead(monkeypatch)
    changed: list[int] = []

    async def changing(self: MemoryFollower) -> bool:
        if len(target.made) == CHUNK_ROWS and not changed:
            self._changes += 1
            changed.append(self._changes)
        return True

    monkeypatch.setattr(MemoryFollower, "look_around", changing)
    async with beside(world.running(target)) as running:
        await running.settle()
    assert ahead
    assert changed
    assert WRONG not in [row.key for row in target.made]
    assert plain(target, "a") == world.rows("a")


async def test_a_row_that_is_copied_again_drops_the_chunk_that_was_read_ahead(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row comes with the log up to its moment, which the chunk may lack."""
    target = MemoryTarget()
    ahead = wrong_ahead(monkeypatch)
    asked: list[asyncio.Task[bool]] = []

    async def turning(self: MemoryFollower) -> bool:
        await asyncio.sleep(0)  # After one turn of the loop the request is queued.
        return True

    monkeypatch.setattr(MemoryFollower, "look_around", turning)
    async with asyncio.TaskGroup() as tasks, beside(world.running(target)) as running:

        def fate(step: SourceRow | str) -> None:
            if len(target.made) == CHUNK_ROWS - 1 and not asked:
                asked.append(tasks.create_task(running.copy_again("a", 1), name="asked"))

        target.fate = fate
        await running.settle()
        assert await asked[0]
    assert ahead
    assert WRONG not in [row.key for row in target.made]
    assert plain(target, "a") == world.rows("a")


async def test_a_row_that_is_copied_again_comes_after_the_log_up_to_it(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryTarget()
    read = MemoryReader.read_row

    async def later(self: MemoryReader, table: MemoryTable, key: Key) -> Read:
        for number in range(20):
            world.commit(("a", number, 1000 + number))
        return await read(self, table, key)

    monkeypatch.setattr(MemoryReader, "read_row", later)
    async with beside(world.running(target)) as running:
        await running.settle()
        assert await running.copy_again("a", 7)
        await running.settle()
    assert target.skipped == 0
    assert plain(target, "a") == world.rows("a")


def wrong_ahead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give the first chunk that is read ahead a row that no table has. Return what notes it."""
    ahead: list[int] = []

    async def wrong(self: MemoryReader, table: MemoryTable, cursor: list[str], rows: int) -> Read:
        chunk = await self.read_chunk(table, cursor)
        if not ahead:
            ahead.append(rows)
            return with_a_wrong_row(chunk)
        return chunk

    monkeypatch.setattr(MemoryReader, "read_next", wrong)
    return ahead


def with_a_wrong_row(chunk: Read) -> Read:
    """Return a chunk with a row that shows that it was written."""
    assert chunk is not None
    return CopyChunk(chunk.moment, [*chunk.rows, (WRONG[0][1], -1)], chunk.cursor)


async def test_a_table_that_is_not_read_ahead_ends_as_one_that_is_not_read(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = MemoryTarget()

    async def refusing(
        self: MemoryReader, table: MemoryTable, cursor: list[str], rows: int
    ) -> Read:
        assert rows == CHUNK_ROWS
        if table.full_name == "a":
            raise TableUnread("a is gone")
        return await self.read_chunk(table, cursor)

    monkeypatch.setattr(MemoryReader, "read_next", refusing)
    async with beside(world.running(target)) as running:
        await running.until(lambda: len(target.rows.get("b", ())) == ROWS, "b is copied")
        assert running.lives == 1
    assert len(target.rows["a"]) == CHUNK_ROWS


@pytest.mark.parametrize("sweeps_first", [True, False])
async def test_a_sweep_comes_first_or_last_as_the_source_wants_it(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch, sweeps_first: bool
) -> None:
    monkeypatch.setattr(MemoryReader, "sweeps_first", sweeps_first)
    target = MemoryTarget()
    async with beside(world.running(target)) as running:
        await running.settle()
    stray: Key = (("id", ROWS + 1),)
    target.rows["a"][stray] = {"v": 0}
    world.begin_again(target, "a")
    done = len(target.made)
    async with beside(world.running(target)) as running:
        await running.settle()
    again = [row.key for row in target.made[done:]]
    assert again.index(stray) == (0 if sweeps_first else ROWS)


async def test_the_checkpoint_never_names_what_is_not_durable(world: MemoryWorld) -> None:
    target = MemoryTarget()
    kept: list[tuple[int, int]] = []

    def fate(step: SourceRow | str) -> None:
        if step == "keep" and target.kept:
            made = sum(len(target.rows[table]) for table in ("a", "b"))
            kept.append((count_copied_rows(target.kept), made))

    target.fate = fate
    async with beside(world.running(target)) as running:
        await running.settle()
    assert kept
    assert all(named <= made for named, made in kept)


def count_copied_rows(checkpoint: bytes) -> int:
    """Return how many rows a checkpoint says are copied."""
    tables = NumbersCheckpoint.parse(checkpoint).tables.values()
    return sum(
        ROWS if table.copied else int(table.cursor[0]) + 1 if table.cursor else 0
        for table in tables
    )


async def test_what_is_asked_of_a_life_that_ends_is_refused(world: MemoryWorld) -> None:
    target = MemoryTarget()
    source = world.source()
    world.server.too_early = 10**6  # It can't be done before the end.

    async def write(row: SourceRow) -> None:
        raise AssertionError(row)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(source.run(target), name="source")
        await until_async(lambda: world.server.too_early < 10**6, "a read was too early")
        asking = tasks.create_task(
            _expect_refusal(source.copy_again("a", [1], write)), name="asking"
        )
        await asyncio.sleep(0)  # One turn: it has asked.
        source.stop()
        await running
        await asking


async def _expect_refusal(asked: Any) -> None:
    with pytest.raises(Unavailable, match="does not follow its server now"):
        await asked


def test_positions_of_the_source_in_memory_rise() -> None:
    change = memory_source.Transaction(3, (("a", 1, 1), ("a", 2, 2)), 0)
    positions = [row.position for row in memory_source.rows_of(change, epoch=1)]
    assert positions == sorted(set(positions))
    later = memory_source.Transaction(4, (("a", 1, 1),), 0)
    assert positions[-1] < memory_source.rows_of(later, epoch=1)[0].position
