"""A consumer that begins with the rows has, at every moment, the table as it was at a stamp."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.worker import Batch, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Delete, Put
from rowtide.core.records.change import Change
from tests.api.calls import INF_MAX, INF_MIN, key
from tests.changes.conftest import MakeSource
from tests.changes.readers import SETTINGS, Readers
from tests.changes.test_readers_together import SEED, STEPS, World

pytestmark = pytest.mark.system

ROWS = 60
SAME_S_MAX = 60.0
_consumers = count()


class Copy:
    """A table made of what a reader was given, as a sink makes it: by key and commit stamp."""

    def __init__(self) -> None:
        self.held: dict[tuple[Any, ...], tuple[int, dict[str, Any] | None]] = {}
        self.went_back = 0
        self.covered = 0

    async def take(self, batch: Batch) -> None:
        """Be given a batch; a crash may come between any two changes."""
        self.covered += batch.covers is not None
        for change in batch:
            self._take(change)
            await asyncio.sleep(0)

    def _take(self, change: Change) -> None:
        row_key = tuple(value for _, value in change.key)
        stamp, row = self.held.get(row_key, (0, None))
        if change.stamp < stamp:
            self.went_back += 1
            return
        if change.kind == "delete":
            self.held[row_key] = change.stamp, None
            return
        kept = dict(row or {}) if change.kind == "update" else {}
        for name in change.removed:
            kept.pop(name, None)
        self.held[row_key] = change.stamp, kept | change.columns

    def rows(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {row_key: row for row_key, (_, row) in self.held.items() if row is not None}


class Rewritten(World):
    """A table whose rows are put, changed in part and deleted."""

    async def fill(self) -> None:
        for number in range(ROWS):
            puts = [Put("n", number), Put("s", "first")]
            await self.ask(self._admin.put_row, self._table, self._key(number), puts)

    async def write(self, writes: int) -> None:
        for number in range(writes):
            row_key = self._key(self._chance.randrange(ROWS))
            what = self._chance.random()
            if what < 0.3:
                await self.ask(self._admin.put_row, self._table, row_key, [Put("n", number)])
            elif what < 0.7:
                changes = [Put("s", f"{number}"), Delete("n") if what < 0.4 else Put("m", number)]
                await self.ask(self._admin.update_row, self._table, row_key, changes)
            else:
                await self.ask(self._admin.delete_row, self._table, row_key)

    async def step(self, *, writes: int = 8) -> None:
        """Write, or change a shard."""
        what = self._chance.random()
        if what < 0.7:
            await self.write(writes)
        else:
            await self._chance.choice([self.split, self.split, self.merge, self.move])()

    async def rows(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        return await self.ask(self._read)  # type: ignore[no-any-return]

    def _read(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        ends = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
        return {
            tuple(value for _, value in row.key): {put.name: put.value for put in row.columns}
            for page in self._admin.get_range(self._table, *ends)
            for row in page
        }

    def _key(self, number: int) -> Any:
        return key("abcdefgh"[number % 8] + str(number // 8 % 3), number)


def differences(copy: Copy, rows: dict[Any, Any]) -> dict[Any, Any]:
    copy_rows = copy.rows()
    return {
        k: (copy_rows.get(k), rows.get(k))
        for k in copy_rows | rows
        if copy_rows.get(k) != rows.get(k)
    }


async def test_rows_and_changes_make_the_table_whatever_happens(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    chance = random.Random(SEED)
    world = Rewritten(admin, table, chance)
    await world.fill()
    copy = Copy()
    async with asyncio.TaskGroup() as tasks:
        readers = copiers(tasks, lambda: source(table), endpoint, copy)
        readers.start()
        for _ in range(STEPS):
            what, running = chance.random(), len(readers.running)
            if what < 0.15 and running < 3:
                readers.start()
            elif what < 0.25 and running:
                await readers.crash(chance.randrange(running))
            else:
                await world.step()
        if not readers.running:
            readers.start()
        await wait_until_same(readers, copy, world)
        await readers.stop_all()
    assert copy.covered


async def test_nothing_goes_back_in_time_while_rows_are_read(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    world = Rewritten(admin, table, random.Random(SEED))
    await world.fill()
    copy = Copy()
    async with asyncio.TaskGroup() as tasks:
        slow = FollowerSettings(batch_changes_max=3)
        readers = copiers(tasks, lambda: source(table), endpoint, copy, slow)

        async def take(batch: Batch) -> None:
            await world.step(writes=2)  # Between any two batches something changes.
            await copy.take(batch)

        readers.take = take
        readers.start()
        await readers.until(lambda: copy.covered > ROWS // 6)
        readers.take = copy.take
        await wait_until_same(readers, copy, world)
        await readers.stop_all()
    assert not readers.interrupted
    assert not copy.went_back, f"ROWTIDE_CHANGES_SEED={SEED}"


async def test_rows_that_go_before_they_are_read_again_are_deleted(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    world = Rewritten(admin, table, random.Random(SEED))
    await world.fill()
    copy = Copy()

    async def take(batch: Batch) -> None:
        await copy.take(batch)
        if copy.covered == 3:
            raise ZeroDivisionError  # After it has the rows, before that is known.

    async with asyncio.TaskGroup() as tasks:
        readers = copiers(tasks, lambda: source(table), endpoint, copy)
        readers.take = take
        failing = readers.worker()
        with pytest.raises(ZeroDivisionError):
            await failing.run()
        for row_key in list(copy.rows()):
            await world.ask(admin.delete_row, table, key(*row_key))
        readers.take = copy.take
        readers.start()
        await wait_until_same(readers, copy, world)
        await readers.stop_all()


def copiers(
    tasks: asyncio.TaskGroup,
    source: Callable[[], ChangeSource],
    endpoint: Endpoint,
    copy: Copy,
    settings: FollowerSettings = SETTINGS,
) -> Readers:
    """Return readers of a new consumer that make the copy."""
    consumer = f"copies-{next(_consumers)}"
    readers = Readers(tasks, source, endpoint, consumer, begin="rows", settings=settings)
    readers.take = copy.take
    return readers


async def wait_until_same(readers: Readers, copy: Copy, world: Rewritten) -> None:
    """Return once the copy equals the table. A last change may still be on its way."""
    until = time.monotonic() + SAME_S_MAX
    while found := differences(copy, await world.rows()):
        assert time.monotonic() < until, f"ROWTIDE_CHANGES_SEED={SEED}: {found}"
        await readers.until(lambda: True)
