"""A shard whose log does not answer delays nothing else: not its slot, other tables, or a start.

There is one worker, or two of which the second takes the slot over. Times are virtual
seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.records.record import NoOp
from rowtide.core.rows.mutation import PUT, ChangeRequest, Outcome
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.schema import ShardRange
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.opening.opening_shards import MISSING_S
from rowtide.stream.slot.slot import Slot
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.scene import ROW, SHARD, Scene
from tests.simulation.simulated_worker import TOPICS, SimulatedWorker
from tests.simulation.tables import INDEXED, INSTANCE, PLAIN
from tests.simulation.unanswering import unanswering
from tests.simulation.world import World

A, B = 0, 1
AWAY = "s3"
"""The shard of the table with an index, in slot 0, as is ``SHARD`` where there is one slot."""
NEW = "s51"
SOON_S = 25.0
"""Longer than a slot waits for a log that does not answer."""
FLUSHED_S = 30.0
LATER_S = 10.0
"""Longer than the pause before a shard is tried again."""


def run(story: Callable[[Scene], Awaitable[None]], *, workers: int = 1, slots: int = 1) -> None:
    """Run a story of workers of which the first has all slots; then check everything."""

    async def whole(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        scene = Scene(world)
        if workers > 1:
            await scene.give(A)
        await asyncio.sleep(5)
        await story(scene)

    in_world(whole, workers=workers, slots=slots)


def slots_of(scene: Scene, number: int) -> Sequence[Slot]:
    """Return a worker's slots in the order of their numbers."""
    return [slot for _, slot in sorted(scene.worker(number).roster.slots.items())]


def take_over(scene: Scene) -> None:
    """Have the group give slot 0 to the second worker."""
    scene.world.shared.group.divide({0: scene.worker(B).address})


def plan_create(slot: int) -> Callable[[Catalog, int], list[Document]]:
    """Return what makes a table of one shard in a slot."""

    def decide(catalog: Catalog, _stamp: int) -> list[Document]:
        like = catalog.tables[INSTANCE, PLAIN]
        shards = (ShardRange(NEW, slot),)
        new = replace(like, name="new", table_id=51, shards=shards, ended=(), split_points=())
        ids = Document("counters", "ids", {"table": 52, "shard": 60})
        return [Document(TABLE, table_id(new), table_content(new)), ids]

    return decide


def plan_drop(name: str) -> Callable[[Catalog, int], list[Document]]:
    """Return what drops a table."""
    return lambda catalog, _stamp: [Document(TABLE, table_id(catalog.tables[INSTANCE, name]), None)]


def plan_time_to_live(name: str) -> Callable[[Catalog, int], list[Document]]:
    """Return what changes a table's options."""

    def decide(catalog: Catalog, _stamp: int) -> list[Document]:
        table = catalog.tables[INSTANCE, name]
        changed = replace(table, options=replace(table.options, time_to_live_s=7 * 86400))
        return [Document(TABLE, table_id(table), table_content(changed))]

    return decide


def test_a_slot_opens_and_flushes_without_a_shard_whose_log_is_away() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A)
        with unanswering(AWAY, bounds=True) as away:
            take_over(scene)
            await asyncio.sleep(SOON_S)
            [slot] = slots_of(scene, B)
            assert slot.opened.is_set()
            assert set(slot.shards) == {SHARD, "s2"}
            assert slot.opening.keys() == {AWAY}
            assert slot.all_closed == {}
            attempt = await scene.write(B, PUT)
            assert attempt.applied
            await asyncio.sleep(FLUSHED_S)
            assert not slot.shards[SHARD].ledger.keys
            away.bounds = False
            await asyncio.sleep(LATER_S)
            assert AWAY in slot.shards
            assert slot.opening == {}
        await scene.world.settle()

    run(story, workers=2)


@pytest.mark.parametrize("deleted_s", [MISSING_S / 2, MISSING_S * 3])
def test_a_shard_whose_log_does_not_exist_is_reported_as_closed_and_comes_back_with_it(
    deleted_s: float,
) -> None:
    """For a while it may be the broker that does not know."""

    async def story(scene: Scene) -> None:
        with unanswering(AWAY, deleted=True) as away:
            take_over(scene)
            await asyncio.sleep(deleted_s)
            [slot] = slots_of(scene, B)
            counts_as_gone = deleted_s > MISSING_S
            assert (AWAY in slot.all_closed) is counts_as_gone
            assert (AWAY in slot.opening) is not counts_as_gone
            with pytest.raises(Unavailable) as refused:
                slot.owner(AWAY)
            assert ("does not exist" in str(refused.value)) is counts_as_gone
            refusal = "does not exist" if counts_as_gone else "is not closed"
            with pytest.raises(StoreError, match=refusal):
                await slot.repair(AWAY, accept=True)
            away.deleted = False
            await asyncio.sleep(LATER_S)
            assert AWAY in slot.shards
            assert slot.all_closed == slot.opening == {}
        await scene.world.settle()

    run(story, workers=2)


def test_a_table_of_which_a_slot_hears_while_it_opens_is_open_when_it_has() -> None:
    async def story(scene: Scene) -> None:
        with unanswering(AWAY, refuses=True):
            take_over(scene)
            await asyncio.sleep(5)
            [slot] = slots_of(scene, B)
            assert not slot.opened.is_set()
            await scene.worker(B).catalog_owner.change(plan_create(0))
            await asyncio.sleep(SOON_S)
            assert NEW in slot.shards

    run(story, workers=2)


def test_a_table_is_made_beside_a_shard_that_does_not_open() -> None:
    async def story(scene: Scene) -> None:
        with unanswering(AWAY, bounds=True):
            take_over(scene)
            await asyncio.sleep(SOON_S)
            await scene.worker(B).placement.change(plan_create(0))
            assert NEW in slots_of(scene, B)[0].shards

    run(story, workers=2)


def test_a_table_whose_own_shard_does_not_open_is_not_said_to_be_made() -> None:
    async def story(scene: Scene) -> None:
        with unanswering(NEW, bounds=True):
            with pytest.raises(OutcomeUnknown):
                await scene.worker(A).placement.change(plan_create(0))
            await scene.worker(A).placement.change(plan_time_to_live(PLAIN))
        await asyncio.sleep(LATER_S)
        assert NEW in slots_of(scene, A)[0].shards

    run(story)


def options_kept(worker: SimulatedWorker) -> bool:
    """True if the options of the shard that was away are those of its table."""
    owner = worker.roster.slots[0].shards[AWAY]
    return owner.shard.state.options == owner.shard.table.options


def test_options_that_a_log_refuses_keep_no_other_table_waiting() -> None:
    async def story(scene: Scene) -> None:
        worker = scene.worker(A)
        with unanswering(AWAY, refuses=True):
            with pytest.raises(OutcomeUnknown):
                await worker.placement.change(plan_time_to_live(INDEXED))
            await worker.placement.change(plan_time_to_live(PLAIN))
            await worker.placement.change(plan_create(1))
            assert NEW in slots_of(scene, A)[1].shards
            assert not options_kept(worker)
        await asyncio.sleep(LATER_S)
        assert options_kept(worker)

    run(story, slots=2)


def write_all_the_time(owner: ShardOwner) -> None:
    """Ask for the next change of the row whenever one is answered: something waits always."""

    def ask(_result: Outcome | StoreError | None = None) -> None:
        change = ChangeRequest(PUT, ROW.key, [put_cell(MARK, variant.encode("busy"), None)])
        with suppress(Unavailable):  # The shard closes, in the end.
            owner.submit(change, ask)

    for _ in range(3):
        ask()


def test_options_are_changed_again_where_a_busy_shard_left_some_without_an_answer() -> None:
    """It was waited for until no change waited at the shard."""

    async def story(scene: Scene) -> None:
        worker = scene.worker(A)
        scene.world.check = lambda: None  # type: ignore[method-assign]  # Nobody notes the writes.
        with unanswering(SHARD, unknown=True), pytest.raises(OutcomeUnknown):
            await worker.placement.change(plan_time_to_live(PLAIN))
        owner = scene.shard(A)
        write_all_the_time(owner)
        await asyncio.sleep(LATER_S)
        async with asyncio.timeout(LATER_S):
            await worker.placement.settle({owner.shard.table.table_id})
        assert owner.pending

    run(story)


def test_a_table_is_dropped_whose_log_does_not_answer() -> None:
    """A batch of it is in flight, whose outcome stays unknown."""

    async def story(scene: Scene) -> None:
        worker, [slot, other] = scene.worker(A), slots_of(scene, A)
        with unanswering(AWAY, unknown=True, bounds=True):
            asked = slot.shards[AWAY].submit_hidden(NoOp())
            await asyncio.sleep(1)
            await worker.placement.change(plan_drop(INDEXED))
            assert AWAY not in slot.shards
            await worker.placement.change(plan_create(1))
            assert NEW in other.shards
            assert slot.opening == {}
            with pytest.raises(OutcomeUnknown):
                await asked

    run(story, slots=2)


def test_a_slot_opens_where_a_table_is_dropped_while_its_shard_is_fenced() -> None:
    async def story(scene: Scene) -> None:
        with unanswering(AWAY, refuses=True) as away:
            take_over(scene)
            await asyncio.sleep(5)
            [slot] = slots_of(scene, B)
            await scene.worker(B).placement.change(plan_drop(INDEXED))
            away.deleted = True
            await asyncio.sleep(SOON_S)
            assert slot.opened.is_set()
            assert slot.opening == slot.all_closed == {}
            assert AWAY not in slot.shards

    run(story, workers=2)


def test_a_closed_shard_whose_table_is_dropped_is_reported_no_more() -> None:
    async def story(scene: Scene) -> None:
        log = scene.world.broker.log((TOPICS.shard(AWAY), 0))
        take_over(scene)
        log.start, log.entries = log.end + 9, []  # As an operator may have trimmed it.
        await asyncio.sleep(SOON_S)
        [slot] = slots_of(scene, B)
        assert slot.closed.keys() == {AWAY}
        await scene.worker(B).placement.change(plan_drop(INDEXED))
        assert slot.closed == slot.all_closed == {}

    run(story, workers=2)
