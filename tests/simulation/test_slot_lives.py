"""A slot that fails while it serves opens again, and ends when it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.cluster.lease import CLAIM, Lease, encode_lease
from rowtide.core.records import record
from rowtide.core.rows.mutation import PUT, ChangeRequest
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.slot import WATCH_S, Slot
from tests.simulation.program import in_world
from tests.simulation.simulated_worker import TOPICS
from tests.simulation.tables import PLAIN
from tests.simulation.world import World

LIVES = 3


def run(program: Callable[[World], Awaitable[None]]) -> None:
    """Run a program in a world of one worker with one slot, which is open."""

    async def begin_and_run(world: World) -> None:
        await world.begin()
        await program(world)

    in_world(begin_and_run, workers=1, slots=1)


def slot_of(world: World) -> Slot:
    """Return the one slot."""
    [worker] = world.live()
    return worker.roster.slots[0]


def take_away(world: World) -> None:
    """Have the worker give the slot away at once."""
    [worker] = world.live()
    worker.roster.revoke(frozenset((0,)))
    worker.roster.hurry()


def claim_by_rival(world: World) -> None:
    """Let another worker claim the slot without serving it."""
    log = world.broker.log((TOPICS.lease, 0))
    claim = Lease(log.end, CLAIM, log.end, b"a rival.", "rival:1")
    world.broker.append((TOPICS.lease, 0), [(b"", encode_lease(claim))])


async def lose(world: World) -> None:
    """Let it see a later claim while it serves; return once it has closed."""
    slot = slot_of(world)
    await slot.opened.wait()
    claim_by_rival(world)
    await asyncio.sleep(WATCH_S * 1.5)
    assert not slot.opened.is_set()


def test_it_opens_again_after_each_failure() -> None:
    async def program(world: World) -> None:
        for _ in range(LIVES):
            await lose(world)
        await slot_of(world).opened.wait()

    run(program)


@pytest.mark.parametrize("ms", range(0, 1000, 50))
def test_it_ends_when_it_is_cancelled_whatever_else_fails(ms: int) -> None:
    async def program(world: World) -> None:
        [worker] = world.live()
        slot = slot_of(world)
        claim_by_rival(world)
        await asyncio.sleep(ms / 1000)
        take_away(world)
        await asyncio.sleep(30)
        # What has ended may be adopted anew: by then nobody else renews its lease.
        assert worker.roster.slots.get(0) is not slot

    run(program)


def test_one_that_gives_way_stays_closed_until_it_is_cancelled() -> None:
    async def program(world: World) -> None:
        slot = slot_of(world)
        [worker] = world.live()
        with patch.object(worker.handover, "give_way", lambda _number: True):
            await lose(world)
            await asyncio.sleep(600)
            assert not slot.opened.is_set()

    run(program)


@pytest.mark.parametrize("ms", range(50, 1000, 100))
def test_one_that_is_revoked_while_its_claim_waits_ends_alone(ms: int) -> None:
    async def program(world: World) -> None:
        [worker] = world.live()
        await lose(world)
        await asyncio.sleep(ms / 1000)  # It claims again, and waits for its rival's lease.
        take_away(world)
        await asyncio.sleep(5)
        worker.roster.assign(frozenset((0,)))
        await asyncio.sleep(5)
        assert slot_of(world).opened.is_set()

    run(program)


def seven_versions(catalog: Catalog, _stamp: int) -> list[Document]:
    """Let the first table keep seven versions."""
    [table] = [t for t in catalog.tables_by_id.values() if t.name == PLAIN]
    changed = replace(table, options=replace(table.options, max_versions=7))
    return [Document(TABLE, table_id(table), table_content(changed))]


def test_a_change_is_in_force_in_what_is_served_while_the_rest_still_opens() -> None:
    held = asyncio.Event()
    really_open = ShardOpener.open

    async def slow(
        self: ShardOpener, table: Table, shard: ShardRange, *more: Any, **named: Any
    ) -> ShardOwner:
        if shard.shard_id == "s2":
            await held.wait()
        return await really_open(self, table, shard, *more, **named)

    async def program(world: World) -> None:
        [worker] = world.live()
        with patch.object(ShardOpener, "open", slow):
            await lose(world)
            await asyncio.sleep(30)
            assert "s1" in slot_of(world).shards
            assert not slot_of(world).opened.is_set()
            await worker.placement.change(seven_versions)
            assert slot_of(world).shards["s1"].shard.state.options.max_versions == 7
            held.set()
            await slot_of(world).opened.wait()

    run(program)


def test_what_comes_as_soon_as_a_shard_is_served_is_written_under_its_tables_options() -> None:
    really_open = ShardOwner.open
    row = [(b"name", variant.encode("a")), (b"number", variant.encode(1))]

    def open_and_write(self: ShardOwner) -> None:
        really_open(self)
        if self.shard.shard_id == "s1":
            submit = partial(self.submit, ChangeRequest(PUT, row, []), lambda _result: None)
            asyncio.get_running_loop().call_soon(submit)

    def bodies(world: World) -> list[type]:
        entries = world.broker.log((TOPICS.shard("s1"), 0)).entries
        return [type(record.decode_record(entry.value)[1]) for entry in entries]

    async def program(world: World) -> None:
        [worker] = world.live()
        await slot_of(world).opened.wait()
        before = len(bodies(world))
        with patch.object(ShardOwner, "open", open_and_write):
            await lose(world)
            await worker.catalog_owner.change(seven_versions)
            await slot_of(world).opened.wait()
            await asyncio.sleep(5)
        written = bodies(world)[before:]
        assert written.index(record.Options) < written.index(record.PutBody)

    run(program)


def test_what_is_read_as_soon_as_a_shard_is_served_is_read_under_its_tables_options() -> None:
    """The change was answered: it was in force wherever a shard was served."""
    really_open = ShardOwner.open
    seen: list[int] = []

    def open_and_look(self: ShardOwner) -> None:
        really_open(self)
        if self.shard.shard_id == "s1":
            seen.append(self.shard.state.options.max_versions)

    async def program(world: World) -> None:
        [worker] = world.live()
        await slot_of(world).opened.wait()
        with patch.object(ShardOwner, "open", open_and_look):
            await lose(world)
            await worker.catalog_owner.change(seven_versions)
            await slot_of(world).opened.wait()
        assert seen == [7]

    run(program)


def test_the_catalog_is_read_when_nobody_else_flushes_any_more() -> None:
    """It shows the owners of the changelog's rows. A catalog that was read before may
    show none for rows that a former owner still flushes of an arriving shard.
    """
    steps: list[str] = []

    async def program(world: World) -> None:
        slot = slot_of(world)
        await slot.opened.wait()
        fence, before_open = slot._changelog.fence, slot._links.before_open

        async def fence_and_note() -> None:
            await fence()
            steps.append("fenced")

        async def catalog_read(claim: int) -> None:
            steps.append("catalog")
            await before_open(claim)

        with (
            patch.object(slot._changelog, "fence", fence_and_note),
            patch.object(slot, "_links", replace(slot._links, before_open=catalog_read)),
        ):
            await lose(world)
            await slot.opened.wait()
        assert steps == ["fenced", "catalog"]

    run(program)


def test_a_closed_shard_of_a_life_that_has_ended_is_not_flushed_in_the_next() -> None:
    async def program(world: World) -> None:
        slot = slot_of(world)
        await slot.opened.wait()
        former = slot.shards["s1"]
        await lose(world)
        await slot.opened.wait()
        with pytest.raises(Unavailable):
            await slot._upkeep.flush.flush(former)

    run(program)


@pytest.mark.parametrize("bound", ["dirty_max", "dirty_bytes_max"])
def test_what_is_much_to_flush_does_not_wait_for_its_time(bound: str) -> None:
    """A flush is one transaction, which may last only so long."""
    waited: dict[int, float] = {}

    async def program(world: World, most: int) -> None:
        slot = slot_of(world)
        often: dict[str, Any] = {"flush_s": 100.0, bound: most}
        flush = slot._upkeep.flush
        flush.settings = replace(flush.settings, **often)
        await slot.opened.wait()
        await asyncio.sleep(6)  # The time that it began to wait was a shorter one.
        world.write(0, 3)
        await asyncio.sleep(1)
        began_s = asyncio.get_running_loop().time()
        assert flush.is_large() == (most == 0)
        for _ in range(2000):
            if flush.scope().dirty:
                await asyncio.sleep(0.1)
        waited[most] = asyncio.get_running_loop().time() - began_s

    for most in (0, 10**9):
        run(partial(program, most=most))
    assert waited[0] < 15 < 80 < waited[10**9]


@pytest.mark.parametrize("end", [claim_by_rival, take_away])
def test_who_waits_for_a_new_shard_hears_at_once_that_its_slot_closes(
    end: Callable[[World], None],
) -> None:
    """A CreateTable in a rolling restart waited 10 s for a shard that no worker opened
    any more.
    """
    really_open = ShardOpener.open

    async def slow(self: ShardOpener, table: Table, *of: Any, **more: Any) -> ShardOwner:
        if table.name == "made":
            await asyncio.sleep(5)
            raise Unavailable("its log has no leader yet")
        return await really_open(self, table, *of, **more)

    def create_table(catalog: Catalog, _stamp: int) -> list[Document]:
        [table] = [t for t in catalog.tables_by_id.values() if t.name == PLAIN]
        number, shard = catalog.next_table_id, ShardRange(f"s{catalog.next_shard}", 0)
        table = replace(table, name="made", table_id=number, shards=(shard,), indexes=())
        document = Document(TABLE, table_id(table), table_content(table))
        return [document, catalog.counters(tables=1, shards=1)]

    async def program(world: World) -> None:
        [worker] = world.live()
        slot = slot_of(world)
        await slot.opened.wait()
        number = worker.catalog.next_table_id
        with patch.object(ShardOpener, "open", slow):
            await worker.catalog_owner.change(create_table)
            slot.begin_settling()
            asyncio.get_running_loop().call_later(0.2, end, world)
            async with asyncio.timeout(2):
                with pytest.raises(Unavailable):
                    await slot.wait_until_settled({number})

    run(program)
