"""Faults that random runs have found, each as the shortest story that shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.mutation import DELETE, IGNORE, PUT, UPDATE
from rowtide.core.rows.mutation import ChangeRequest as Mutation
from rowtide.core.shard.mark import mark_key, mark_position
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.changelog import Change, ChangelogEntry
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.copy import row_ranges
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.life import StartedSlot
from rowtide.stream.slot.reshape import reshapes as slot_reshapes
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.tasks import LifeTasks
from tests.simulation.memory_cluster import MemoryReader, SimulatedLog
from tests.simulation.memory_rows import Disk
from tests.simulation.network import Fate
from tests.simulation.program import in_world, simulate
from tests.simulation.row_model import MARK
from tests.simulation.scene import ROW, Scene, play
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import PLAIN, Place
from tests.simulation.world import World
from tests.support.waiting import until_async

A, B = 0, 1


def test_a_slot_may_be_taken_away_while_its_claim_waits() -> None:
    """The claim looked itself up when its wait was over, and its KeyError ended the process."""

    async def story(scene: Scene) -> None:
        world = scene.world
        world.cut(A, 3000)
        leases = scene.worker(B).leases
        claiming = scene.begin(B, is_refused(leases.claim(0)))
        await scene.until(lambda: leases.age_s(0) is not None)
        await scene.until(scene.begin(B, scene.worker(B).leases.release(0)).done)
        await scene.until(claiming.done)
        assert claiming.result()
        await scene.watch(4)
        await scene.until(lambda: scene.serves(A) or scene.serves(B))

    play(story)


async def is_refused(claim: Awaitable[int]) -> bool:
    """True if a claim came to nothing, in a way that is tried again."""
    try:
        await claim
    except Unavailable:
        return True
    return False


async def test_a_life_of_a_slot_that_ends_takes_no_task() -> None:
    """The catalog changed as a slot failed; the RuntimeError of its tasks ended the process."""
    errors: list[Exception] = []

    async def nothing() -> None:
        return

    async def ask_as_it_ends(tasks: LifeTasks) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            try:
                tasks.create_task(nothing())
            except Unavailable as error:
                errors.append(error)

    async def fail() -> None:
        raise ConnectionError

    async def live() -> None:
        async with LifeTasks() as tasks:
            tasks.create_task(ask_as_it_ends(tasks))
            tasks.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await live()
    assert len(errors) == 1


def test_a_sweep_after_a_flush_that_failed_fences_first() -> None:
    """The sweep used a writer that was good for nothing: its assertion ended the process."""

    async def story(scene: Scene) -> None:
        worker = scene.worker(A)
        await scene.write(A)
        worker.link.flush_fates.append(Fate.LOST_ANSWER)
        scene.world.flush(A)
        changelog = worker.roster.slots[0]._changelog
        await scene.until(lambda: not changelog._writer.ready and not changelog._writing.locked())
        removing = scene.begin(A, changelog.remove([b"r\0\0\0\x63"], {}))
        await scene.until(removing.done)
        removing.result()

    play(story)


def test_a_tombstone_is_all_that_compaction_left_of_a_delete() -> None:
    """A worker that still had the row took nothing for granted from a tombstone alone."""

    async def story(scene: Scene) -> None:
        await scene.write(A)
        await scene.flush(A)
        await scene.give(B)
        await scene.write(B, DELETE)
        await scene.flush(B)
        await scene.flush(B)
        scene.world.compact(10)
        await scene.give(A)

    play(story)


@pytest.mark.parametrize("seconds", [13, -13, 3600, -3600])
def test_a_no_op_that_fences_is_stamped_by_another_clock(seconds: int) -> None:
    """Its stamp was below those before it, and a search by time went astray."""

    async def story(scene: Scene) -> None:
        scene.world.skew(B, seconds)
        await scene.write(A)
        await scene.give(B)
        await scene.write(B, UPDATE)
        await scene.give(A)
        await scene.write(A, UPDATE)

    play(story)


@pytest.mark.parametrize("where", [0, 1, 3], ids=["shard", "lease", "catalog"])
def test_a_former_owner_opens_the_shard_after_its_successor(where: int) -> None:
    """It was stopped as it opened, and went on when another had opened and acknowledged."""

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        world.kill(A, 500)
        world.start(A)
        await asyncio.sleep(0)
        await scene.until(lambda: world.worker(A) is not None)
        world.ambush(A, where, 600_000)
        world.shared.group.divide({0: scene.worker(A).address})
        await scene.until(lambda: scene.worker(A).process.frozen)
        await scene.until(lambda: scene.serves(B))
        await scene.write(B, UPDATE)
        world.thaw(scene.worker(A))
        await scene.watch(0.2)
        if scene.serves(B):
            await scene.write(B, UPDATE)
        await scene.watch(3)

    play(story)


def test_a_client_does_not_wait_while_a_flush_waits_for_the_broker() -> None:
    """One task did both, and no client got an answer."""

    async def story(scene: Scene) -> None:
        scene.worker(A).link.flush_fates.append(Fate.LOST_ANSWER)
        asked = [scene.ask(A, UPDATE) for _ in range(3)]
        await scene.watch(0.5)
        scene.world.outage(20_000)
        scene.world.flush(A)
        asked += [scene.ask(A, UPDATE) for _ in range(3)]
        await scene.watch(18)
        assert all(attempt.result is not None for attempt in asked)

    play(story)


def test_a_queue_is_refused_that_holds_options() -> None:
    """What came after them waited for ever for what had been refused."""

    async def story(scene: Scene) -> None:
        scene.world.outage(9_000)
        before = scene.ask(A, UPDATE)
        await scene.watch(0.02)
        scene.world.options(A, 2)
        await scene.watch(0.02)
        after = scene.ask(A, UPDATE)
        await scene.watch(14)
        assert before.result is not None
        assert after.result is not None
        await scene.until(lambda: scene.serves(A) or scene.serves(B))
        await scene.write(A if scene.serves(A) else B, UPDATE)

    play(story)


def test_a_slot_closes_while_a_flush_waits_for_its_turn() -> None:
    """The flush that came next found nothing to flush with."""

    async def story(scene: Scene) -> None:
        await scene.write(A)
        scene.world.outage(5000)
        for _ in range(3):
            scene.world.flush(A)
        await scene.watch(1)
        scene.world.shared.group.divide({0: scene.worker(B).address})
        await scene.watch(12)
        await scene.until(lambda: scene.serves(B))

    play(story)


def test_rows_that_were_copied_survive_who_made_room_for_them() -> None:
    """A former owner of the slot had folded the copy. Its successor, which had not, made room for
    it in the changelog. The tombstones took the rows from the former one, whose mark said that it
    had them: what was acknowledged was gone when it got the slot back."""

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        for _ in range(20):
            world.write(0, 6)
            await asyncio.sleep(0.05)
        world.move(0, 0, 0)  # Of slot 1, to slot 0.
        while (found := world.owner("s11")) is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        worker, owner = found
        ranges = row_ranges(*worker.catalog.shards["s11"])
        removed: list[Change] = [
            (key, None, [("stamp", b"%d" % stamp)] if stamp else [])
            for key, stamp in owner.rows.rows_within(ranges)
        ]
        assert removed
        assert owner.rows.find_flushed("s11") < 0
        world.kill(worker.number, 1000)
        [changelog] = [c for p, c in world.broker.changelog_places() if p[1] == 0]
        changelog.commit(removed)
        await world.settle()

    in_world(program, workers=2, slots=2)


def test_what_comes_late_of_a_copy_that_was_given_up_stays_away() -> None:
    """A read of its log was answered when room had been made for the next copy. Its rows
    came back, the next copy's rows were not newer, and they were not flushed.
    """
    read, made_room = SimulatedLog.read, SlotIntakes._make_room
    room: dict[str, asyncio.Event] = {}

    async def late(self: SimulatedLog, offset: int, **named: Any) -> list[Entry]:
        found = await read(self, offset, **named)
        if self.place[0].endswith(".s11") and found and found[-1].offset > 0:
            await room.setdefault("s12", asyncio.Event()).wait()
        return found

    async def make_room_and_note(
        self: SlotIntakes, table: Table, shard: ShardRange, rows: RowStore
    ) -> None:
        await made_room(self, table, shard, rows)
        room.setdefault(shard.shard_id, asyncio.Event()).set()

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)
        for _ in range(20):
            world.write(0, 6)
            await asyncio.sleep(0.05)
        source = world.worker(1)
        assert source is not None
        left = ["Options", "rows"]

        def landing(event: str) -> None:
            if ".s11" in event:
                left.pop()
                if not left:
                    world.kill(1, 1000)

        source.link.landing = landing
        world.move(0, 0, 0)
        while world.owner("s12") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not left
        await asyncio.sleep(1)
        world.flush(0)
        await asyncio.sleep(1)
        await world.settle()

    with (
        patch.object(SimulatedLog, "read", late),
        patch.object(SlotIntakes, "_make_room", make_room_and_note),
    ):
        in_world(program, workers=2, slots=2)


def test_rows_of_a_copy_that_was_given_up_elsewhere_do_not_come_back() -> None:
    """They were in one worker's store only, so that no tombstone named them: rows that
    had been deleted long ago came back when that worker got the slot again.
    """

    async def story(scene: Scene) -> None:
        await scene.write(A)
        kept = row_key(1, key.encode([variant.encode("zombie"), variant.encode(1)]))
        [chunk] = [v for k, v in scene.shard(A).rows.scan(b"r", b"s") if k[:5] == kept[:5]][:1]
        disk = scene.world.machines[B].disks.setdefault(0, Disk())
        disk.kept |= {kept: chunk, b"as99": b""}  # What an intake of shard s99 leaves.
        await scene.give(B)
        rows = scene.shard(B).rows
        assert rows.get(kept) is None
        assert rows.arriving() == []

    play(story)


@pytest.mark.parametrize("seed", [38, 10034, 31412, 5371749])
def test_what_a_seed_found_it_does_not_find_again(seed: int) -> None:
    """Each lost rows of a move, or brought them back. The actions may be others by now."""
    simulate(seed)


def test_a_row_of_a_table_that_is_split_meanwhile_goes_to_no_shard_that_lacks_its_key() -> None:
    """Its request was taken a slice at a time; between two of them the table was split."""
    simulate(3380394)


def test_no_commit_is_called_unknown_by_a_catalog_of_before() -> None:
    """Its shard was new, and a deposed leader of the catalog reported an old end to one worker."""
    simulate(6540014)


def test_what_a_worker_kept_of_a_range_that_left_its_slot_and_came_back_is_thrown_away() -> None:
    simulate(40444)


def test_a_former_owner_that_fenced_its_successor_writes_nothing_for_that() -> None:
    """It had been cut off. Its flush fenced the changelog, and then learned of the later
    claim. The next write took its writer for a valid one: it made room for a shard that
    it saw coming, where the successor had just flushed that shard's rows.
    """
    simulate(602403)


def test_a_deletion_after_a_copy_is_taken_from_the_changelog_whatever_a_mark_says() -> None:
    """A worker was killed in the middle of the changelog. It had read the mark of a shard that had
    come by a copy, but not yet the tombstone that compaction had left of a deletion; later it took
    that for one of the time before the copy, and kept a row of an index."""
    simulate(700708)


def test_a_parent_is_not_flushed_while_the_log_of_its_child_is_read() -> None:
    """A put just before a split was missing in a rebuild. Of the child's log a write had been read
    that cut the row in chunks; the flush, which knew the parent's keys alone, took but the first of
    them to the changelog, with a mark that said that the parent was complete."""
    simulate(950940)
    a_flush_in_the_middle_of_opening()


def a_flush_in_the_middle_of_opening() -> None:
    """Run a worker that reads a child's log record by record, flushes, and dies."""

    async def write_text(scene: Scene, kind: int, name: str, text: str) -> None:
        clients = scene.world.clients
        mark = str(len(clients.attempts))
        cells = [
            put_cell(of, variant.encode(value), None)
            for of, value in ((name.encode(), text), (MARK, mark))
        ]
        attempt = clients.ask(scene.worker(A), ROW, Mutation(kind, ROW.key, cells, IGNORE), mark)
        await scene.until(lambda: attempt.result is not None)
        assert attempt.applied

    async def story(scene: Scene) -> None:
        world = scene.world
        await write_text(scene, PUT, "c3", "old")
        await scene.flush(A)
        await write_text(scene, PUT, "c0", "new")
        world.split(0, 0)
        await scene.until(lambda: world.owner("s11") is not None)
        for name in ("c1", "c2", "c4"):  # More than a chunk holds.
            await write_text(scene, UPDATE, name, "x" * 12_000)
        await write_text(scene, UPDATE, "c0", "last")
        world.lose_disk(A)
        world.network.read_bytes_max = 1
        world.network.weather.latency_s = 0.1
        world.start(A)

        def half_way() -> bool:
            worker = world.worker(A)
            slot = None if worker is None else worker.roster.slots.get(0)
            if (
                slot is None
                or slot.rows is None
                or not slot._changelog.is_open
                or "s11" in slot.shards
            ):
                return False
            mark = slot.rows.get(mark_key("s11"))
            return mark is not None and mark_position(mark)[0] >= 3

        await scene.until(half_way)
        world.flush(A)
        await scene.watch(1)
        world.lose_disk(A)
        world.network.read_bytes_max = 1 << 20

    play(story, workers=1)


def test_what_a_life_of_the_slot_folded_of_a_copy_the_next_flushes_once_it_knows_all_of_it() -> (
    None
):
    """The rows had more of the copy than was known to be dirty after the first page of its log. A
    flush wrote that, with a mark that counted the rest."""
    read = SimulatedLog.read

    async def late(self: SimulatedLog, offset: int, **how: Any) -> list[Entry]:
        if ".s11" in self.name and how.get("wait_s"):
            await asyncio.sleep(0.1)
        return await read(self, offset, **how)

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)
        await a_slot_that_lives_twice_while_a_copy_comes(world)
        world.network.read_bytes_max = 1 << 20
        await world.settle()

    never = patch.object(slot_reshapes, "LEFT_RECORDS", -1000)
    with patch.object(SimulatedLog, "read", late), never:
        in_world(program, workers=2, slots=2)


async def a_slot_that_lives_twice_while_a_copy_comes(world: World) -> None:
    """Flush in the second life before it has read what the first one folded, and after that."""

    def write() -> None:
        for name in "abc":
            world.clients.write(world.live()[1], Place(PLAIN, name), world.chance)

    async def until(holds: Callable[[], bool]) -> None:
        await until_async(holds, poll_s=0.005, meanwhile=write)

    async def fail() -> None:
        raise Unavailable("enough")

    world.network.read_bytes_max = 1
    world.move(0, 0, 0)  # Of slot 1, to slot 0.
    [slot] = world.live()[0].roster.slots.values()
    arriving = slot._intakes.arriving
    await until(lambda: slot.find_received("s11") > 3)
    first = arriving["s11"]
    world.flush(0)
    await until(lambda: first.rows.find_flushed("s11") >= 3)
    flushed = first.rows.find_flushed("s11")
    await until(lambda: slot.find_received("s11") > flushed + 10)
    started = slot._life.state
    assert isinstance(started, StartedSlot)
    started.tasks.create_task(fail(), context=world.live()[0].process.context)
    await until(lambda: arriving.get("s11", first) is not first)
    again = arriving["s11"]
    await until(lambda: bool(again.ledger.keys))
    assert not again.ledger.is_complete
    world.flush(0)
    while not again.ledger.is_complete:
        assert again.rows.find_flushed("s11") == flushed
        await asyncio.sleep(0.01)
    world.flush(0)
    await until(lambda: again.rows.find_flushed("s11") > flushed + 10)


def test_rows_of_a_copy_that_an_earlier_life_of_the_slot_folded_are_flushed_in_the_next() -> None:
    """The changelog lacked them below a mark that counted them; the next owner had them not."""
    simulate(201463)


def test_a_copy_follows_nobody_before_the_parents_of_its_parents() -> None:
    """A shard was merged, and what it became split, before a copy had read any of that. It began
    with the grandchildren: their parent was not followed yet, and so was taken for forgotten."""
    simulate(2012952)


def test_a_copy_reads_on_where_the_changelog_was_compacted_into_what_came_meanwhile() -> None:
    """A worker that began to keep a copy read a mark, but not the row that had been flushed with
    it: a later flush had the row again, compaction had reached that one's row and not its mark. The
    copy went on by the log, without what the row had been before (seed 2001364)."""
    flushed = asyncio.Event()
    read = MemoryReader.read

    async def late(self: MemoryReader, *where: Any) -> AsyncIterator[list[ChangelogEntry]]:
        if self.waits:  # type: ignore[attr-defined]
            await flushed.wait()
        async for page in read(self, *where):
            yield page

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A, UPDATE)
        world.flush(A)
        await scene.watch(1)
        world.lose_disk(B)
        with patch.object(MemoryReader, "waits", new=True, create=True):
            world.start(B)
            await scene.until(lambda: world.worker(B) is not None)
            await scene.watch(1)
            assert scene.worker(B).roster.standbys
            await scene.write(A, UPDATE)
            world.flush(A)
            await scene.watch(1)
        [changelog] = world.broker.changelogs()
        [mark] = [e for e in changelog.entries if e.key == mark_key("s1")][-1:]
        changelog.compact(mark.offset)
        flushed.set()
        await scene.until(lambda: bool(scene.worker(B).list_copied_shards()))
        await scene.watch(3)

    with (
        patch.object(MemoryReader, "waits", new=False, create=True),
        patch.object(MemoryReader, "read", late),
    ):
        play(story, copies=True)


def test_what_a_former_owner_ends_as_the_next_one_opens_is_read_to_its_end() -> None:
    """A worker opened a slot and read the logs of the shards that had ended. Meanwhile
    the former owner, which had sealed another one before, reported it to the catalog. The
    children opened on rows without their parent's last entries (seeds 2114705 and
    2114804).
    """
    read = SimulatedLog.read
    may_read = asyncio.Event()
    reading: list[str] = []

    async def late(self: SimulatedLog, offset: int, **how: Any) -> list[Entry]:
        if self.place[0].endswith(".s1"):
            reading.append(self.name)
            await may_read.wait()
        return await read(self, offset, **how)

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        catalogs, former = world.live()
        world.shared.group.divide({0: catalogs.address, 1: former.address})
        await world.until(lambda: serves(former, "s1"))
        world.split(0, 0)
        await world.until(lambda: serves(former, "s12"))
        for _ in range(10):
            for name in "abc":
                world.clients.write(former, Place(PLAIN, name), world.chance)
            await asyncio.sleep(0.05)

        def landing(where: str) -> None:
            if ".s12" in where:
                world.pause(former.number, 600_000)

        former.link.landing = landing
        world.split(0, 1)
        await world.until(lambda: former.process.frozen)
        with patch.object(SimulatedLog, "read", late):
            world.shared.group.divide(dict.fromkeys((0, 1), catalogs.address))
            await world.until(lambda: bool(reading))
            world.thaw(former)
            await world.until(lambda: catalogs.catalog.shards["s12"][1].sealed_us > 0)
            may_read.set()
            await world.until(lambda: serves(catalogs, "s13"))
            world.check()
        await world.settle()

    in_world(program, workers=2, slots=2)


def test_nobody_decides_by_half_a_change_of_the_catalog() -> None:
    """A worker whose change had landed unheard read of it in pieces, and decided again half way: by
    a table whose shard had ended, and a plan that was still to be carried through."""
    simulate(2200432)


def serves(worker: SimulatedWorker, shard_id: str) -> bool:
    """True if a worker has a shard open."""
    return any(owner.shard.shard_id == shard_id for owner in worker.open_shards())


@pytest.mark.parametrize("seed", [2120537, 2120716])
def test_ended_shards_are_read_by_the_life_of_the_slot_that_has_the_rows(seed: int) -> None:
    """A settling task read them while the slot closed: it wrote to closed rows, and that
    ended the process.
    """
    simulate(seed)
