"""One reader serves all viewers of a table: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.console.feed.feed_viewer import QUEUE_BYTES_MAX
from rowtide.console.feed.frame_pace import FRAME_S_MIN
from rowtide.core.values.errors import Rejected, Unavailable
from tests.changes.virtual_table import Table
from tests.console.feed.memory_table import HOUR_US, Console, MemorySource, MemoryViewer, key_of
from tests.simulation.virtual_time import in_virtual_time

KEYS = [f"{letter}{number}" for letter in "abcdef" for number in range(2)]
POSITION_AGE_S_MAX = 6.0


class World:
    """A table, one console, and what was written."""

    def __init__(self, tasks: asyncio.TaskGroup, *, ring_bytes_max: int = 1 << 26) -> None:
        self.table = Table()
        self.table.stamp = 100 * HOUR_US
        self.source = MemorySource(self.table)
        self.written: list[tuple[str, int]] = []
        self._counts: dict[str, int] = defaultdict(int)
        self._tasks = tasks
        self._ring_bytes_max = ring_bytes_max
        self.console = self.start()

    def start(self) -> Console:
        """Start another console."""
        self.console = Console(self._tasks, self.source, ring_bytes_max=self._ring_bytes_max)
        return self.console

    def write(self, name: str, *, delete: bool = False) -> None:
        """Write a row."""
        self.table.write(key_of(name), delete=delete)
        self._counts[name] += 1
        self.written.append((name, self._counts[name]))
        self.source.note_change()

    def split(self, at: str) -> None:
        """Split the shard that holds a key, unless it begins there."""
        for shard in self.table.living():
            self.table.split(shard, key_of(at))
        self.source.note_change()

    def merge(self, which: int) -> None:
        """Merge two neighbours, if there are two."""
        living = self.table.living()
        if len(living) > 1:
            at = which % (len(living) - 1)
            self.table.merge(living[at], living[at + 1])
            self.source.note_change()

    def list_expected(self, since: int = 0, wanted: Callable[[str], bool] = bool) -> dict[str, Any]:
        """Return the numbers by key of what was written from the write ``since`` on."""
        found: dict[str, list[int]] = defaultdict(list)
        for name, number in self.written[since:]:
            if wanted(name):
                found[name].append(number)
        return dict(found)


def play(story: Callable[[World], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Run a story in virtual time, on a table with one console."""

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks, **options)
            await story(world)
            await world.console.kill()

    in_virtual_time(run())


def test_a_viewer_gets_what_comes_after_ready() -> None:
    async def story(world: World) -> None:
        world.write("a0")
        viewer = MemoryViewer()
        await world.console.open(viewer)
        world.write("a0")
        world.write("b0")
        await viewer.until(2)
        assert viewer.names[0] == "ready"
        assert viewer.numbers() == {"a0": [2], "b0": [1]}

    play(story)


def test_two_viewers_with_one_wish_share_a_frame() -> None:
    async def story(world: World) -> None:
        viewers = [MemoryViewer() for _ in range(5)]
        for viewer in viewers:
            await world.console.open(viewer)
        await asyncio.sleep(0.1)
        world.write("a0")
        for viewer in viewers:
            await viewer.until(1)
        assert world.console.hub.groups["every"].frames == 1
        assert len({viewer.wire.frames[-1] for viewer in viewers}) == 1

    play(story)


def test_a_resumer_within_the_ring_costs_no_read() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        await viewer.close()
        for _ in range(20):
            world.write("a0")
        await asyncio.sleep(1)
        await world.console.open(viewer)
        await viewer.until(20)
        assert viewer.numbers() == world.list_expected()
        assert world.console.hub.catch_up.reads == 0

    play(story)


def test_many_resumers_behind_the_ring_share_one_reader() -> None:
    async def story(world: World) -> None:
        viewers = [MemoryViewer(begin="oldest") for _ in range(20)]
        for number in range(3000):
            world.write(KEYS[number % len(KEYS)])
        for viewer in viewers:
            await world.console.open(viewer)
        for viewer in viewers:
            await viewer.until(3000)
            assert viewer.numbers() == world.list_expected()
        # 6 pages of 500, and one read for those who want the end.
        assert world.console.hub.catch_up.reads <= 10

    play(story)


def test_the_ring_forgets_and_the_older_records_are_read_again() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        await viewer.close()
        for _ in range(100):
            world.write("a0")
            await asyncio.sleep(0.01)
        assert world.console.hub.ring.size < 30_000
        await world.console.open(viewer)
        await viewer.until(100)
        assert viewer.numbers() == world.list_expected()
        assert world.console.hub.catch_up.reads > 0

    play(story, ring_bytes_max=20_000)


def test_a_filter_that_matches_nothing_moves_the_position_on() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer(filter="n > 1000")
        await world.console.open(viewer)
        loop = asyncio.get_running_loop()
        came, moved_s = 0, loop.time()
        for _ in range(120):
            world.write("a0")
            await asyncio.sleep(0.25)
            viewer.take()
            if len(viewer.events) > came:
                came, moved_s = len(viewer.events), loop.time()
            assert loop.time() - moved_s <= POSITION_AGE_S_MAX
        positions = [event for event in viewer.events if event["event"] == "position"]
        assert len(positions) >= 5
        assert "data" not in positions[0]
        assert len({event["id"] for event in positions}) == len(positions)
        # Resumed there, nothing is read that was skipped before.
        world.console.hub.ring.shrink(0)
        await viewer.close()
        await world.console.open(viewer)
        await asyncio.sleep(1)
        assert world.console.hub.catch_up.reads <= 1

    play(story)


def test_one_key_is_followed_by_lookup() -> None:
    async def story(world: World) -> None:
        viewers = {name: MemoryViewer(key=name) for name in KEYS}
        for viewer in viewers.values():
            await world.console.open(viewer)
        for number in range(60):
            world.write(KEYS[number % len(KEYS)])
        for name, viewer in viewers.items():
            await viewer.until(5)
            assert viewer.numbers() == world.list_expected(0, partial(str.__eq__, name))

    play(story)


def test_a_sampled_viewer_gets_few_records_and_the_count_of_the_others() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer(mode="sampled")
        await world.console.open(viewer)
        began_s = asyncio.get_running_loop().time()
        for number in range(3000):
            world.write(KEYS[number % len(KEYS)])
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        await viewer.until(3000)
        frames = [event["data"] for event in viewer.events if event["event"] == "records"]
        seconds = asyncio.get_running_loop().time() - began_s
        assert len(frames) <= 10 * seconds + 2
        assert max(len(frame["records"]) for frame in frames) == 20
        assert len(viewer.records) + viewer.left_out == 3000

    play(story)


def test_a_sampled_viewer_sees_few_changes_within_a_blink() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer(mode="sampled")
        await world.console.open(viewer)
        loop = asyncio.get_running_loop()
        delays: list[float] = []
        waiting: list[float] = []
        for moment in range(2000):
            if moment % 10 == 0:
                world.write(KEYS[moment // 10 % len(KEYS)])
                waiting.append(loop.time())
            await asyncio.sleep(0.001)
            viewer.take()
            came = len(viewer.records) - len(delays)
            delays += [loop.time() - written_s for written_s in waiting[:came]]
            del waiting[:came]
        await viewer.until(200)
        assert viewer.left_out == 0
        assert max(delays) < 0.03
        frames = sum(1 for event in viewer.events if event["event"] == "records")
        assert frames <= 2.0 / FRAME_S_MIN["sampled"] + 1

    play(story)


@pytest.mark.parametrize(("mode", "reads_max"), [("sampled", 25), ("every", 105)])
def test_a_worker_is_asked_no_more_often_than_frames_are_due(mode: str, reads_max: int) -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer(mode=mode)
        await world.console.open(viewer)
        for number in range(10_000):
            world.write(KEYS[number % len(KEYS)])
            if number % 100 == 99:
                await asyncio.sleep(0.02)
        await viewer.until(10_000)
        assert world.source.reads <= reads_max

    play(story)


def test_sampled_viewers_who_come_at_any_time_get_exact_counts() -> None:
    async def story(world: World) -> None:
        viewers: list[tuple[int, MemoryViewer]] = []
        keeper = MemoryViewer(mode="sampled")
        await world.console.open(keeper)
        for number in range(600):
            world.write(KEYS[number % len(KEYS)])
            if number % 20 == 7:
                viewer = MemoryViewer(mode="sampled", begin="oldest")
                await world.console.open(viewer)
                viewers.append((number, viewer))
            await asyncio.sleep(0.003)
        for number, viewer in viewers:
            await viewer.until(600)
            await asyncio.sleep(0.5)
            viewer.take()
            assert len(viewer.records) + viewer.left_out == 600, number
        await keeper.until(600)

    play(story)


def test_a_viewer_that_takes_nothing_is_too_slow() -> None:
    async def story(world: World) -> None:
        viewer, other = MemoryViewer(), MemoryViewer()
        await world.console.open(viewer)
        await world.console.open(other)
        await asyncio.sleep(0.1)
        viewer.wire.is_stuck = True
        while viewer.wire.pending_bytes <= QUEUE_BYTES_MAX:
            for _ in range(50):
                world.write("a0")
            await asyncio.sleep(0.02)
        world.write("a0")
        await asyncio.sleep(0.1)
        assert viewer.names[-1] == "slow"
        assert "bytes wait" in viewer.events[-1]["data"]["reason"]
        assert viewer.task is not None
        await viewer.task
        # It resumes where the event says; the other viewer lost nothing.
        await world.console.open(viewer)
        await viewer.until(len(world.written))
        await other.until(len(world.written))
        assert viewer.numbers() == other.numbers() == world.list_expected()

    play(story)


def test_a_viewer_may_wait_five_seconds_for_an_event() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        viewer.wire.is_stuck = True
        world.write("a0")
        await asyncio.sleep(4)
        assert viewer.names[-1] == "records"
        await asyncio.sleep(3)
        assert viewer.names[-1] == "slow"
        assert "waits for" in viewer.events[-1]["data"]["reason"]

    play(story)


def test_a_worker_that_does_not_answer_is_reported_and_nothing_is_lost() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        world.source.failure = Unavailable("no answer from http://worker")
        world.write("a0")
        await asyncio.sleep(12)
        viewer.take()
        behind = [event for event in viewer.events if event["event"] == "behind"]
        assert len(behind) >= 2
        assert behind[0]["data"]["reason"] == "no answer from http://worker"
        assert behind[-1]["data"]["behind_s"] > 5
        world.source.failure = None
        await viewer.until(1)
        assert viewer.numbers() == {"a0": [1]}

    play(story)


def test_a_position_that_is_no_longer_kept_is_expired_and_names_the_oldest() -> None:
    async def story(world: World) -> None:
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        await viewer.close()
        for _ in range(10):
            world.write("a0")
        await asyncio.sleep(1)
        world.console.hub.ring.shrink(0)
        world.source.kept["s0"] = 5
        await world.console.kill()
        world.start()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        assert viewer.names[-1] == "expired"
        oldest = viewer.events[-1]["data"]["oldest"]
        again = MemoryViewer(after=oldest)
        await world.console.open(again)
        await again.until(5)
        assert again.numbers() == world.list_expected(5)

    play(story)


def test_a_child_whose_first_records_may_be_gone_is_expired() -> None:
    async def story(world: World) -> None:
        world.write("a0")
        viewer = MemoryViewer()
        await world.console.open(viewer)
        await asyncio.sleep(1)
        await viewer.close()
        await world.console.kill()
        world.split("c0")
        world.source.now_at_least_us = world.table.stamp + 24 * HOUR_US
        world.start()
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        assert viewer.names[-1] == "expired"

    play(story)


@pytest.mark.parametrize("code", ["table_deleted", "stream_disabled", "stream_replaced"])
def test_a_stream_that_is_gone_ends_the_feeds(code: str) -> None:
    async def story(world: World) -> None:
        viewer, walking = MemoryViewer(), MemoryViewer(begin="oldest")
        await world.console.open(viewer)
        await world.console.open(walking)
        world.console.found_end = world.console.found_end._replace(event="end", code=code)
        world.source.failure = Rejected("OTSObjectNotExist", "gone")
        await asyncio.sleep(5)
        for one in (viewer, walking):
            assert one.names[-1] == "end"
            assert one.events[-1]["data"]["code"] == code
        assert world.console.running.done()

    play(story)


def test_some_shards_are_followed_with_their_children() -> None:
    async def story(world: World) -> None:
        world.split("c0")
        first, second = MemoryViewer(shard="s1"), MemoryViewer(shard="s2", begin="oldest")
        await world.console.open(first)
        await world.console.open(second)
        for name in ("a0", "e0"):
            world.write(name)
        await asyncio.sleep(0.1)
        world.split("b0")
        for name in ("a0", "b1", "e0"):
            world.write(name)
        await first.until(3)
        await second.until(2)
        await first.close()
        world.write("a1")
        world.write("e1")
        await world.console.open(first)
        await first.until(4)
        assert first.numbers() == world.list_expected(0, lambda key: key < "c0")
        assert second.numbers() == {"e0": [1, 2], "e1": [1]}

    play(story)


def test_a_position_of_some_shards_is_refused_for_all() -> None:
    async def story(world: World) -> None:
        world.split("c0")
        viewer = MemoryViewer(shard="s1")
        await world.console.open(viewer)
        await asyncio.sleep(0.1)
        await viewer.close()
        del viewer.parameters["shard"]
        with pytest.raises(Rejected, match="does not have shard s2"):
            await world.console.open(viewer)

    play(story)


ROWS = st.sampled_from(KEYS)


def test_rows_come_first_and_then_what_changes() -> None:
    async def story(world: World) -> None:
        for name in KEYS:
            world.write(name)
        world.split("c0")
        viewer = MemoryViewer(begin="rows")
        await world.console.open(viewer)
        for name in KEYS[:4]:
            world.write(name)
            await asyncio.sleep(0.002)
        world.write("f1", delete=True)
        await asyncio.sleep(1)
        viewer.take()
        assert replay(viewer) == {
            key: numbers[-1] for key, numbers in world.list_expected().items() if key != "f1"
        }
        assert [row["key"]["pk"] for row in viewer.rows] == sorted(
            row["key"]["pk"] for row in viewer.rows
        )

    play(story)


def replay(viewer: MemoryViewer) -> dict[str, int]:
    """Return the rows that a viewer has from rows and changes. Fail if one goes back in time."""
    rows: dict[str, int] = {}
    stamps: dict[str, int] = defaultdict(int)
    for event in viewer.events:
        content = event.get("data", {})
        for record in [*content.get("rows", []), *content.get("records", [])]:
            name = record["key"]["pk"]
            assert record["stamp"] > stamps[name], f"{name} goes back"
            stamps[name] = record["stamp"]
            if record["kind"] == "delete":
                rows.pop(name, None)
            else:
                rows[name] = record["columns"]["n"]
    return rows


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), ROWS, st.integers(1, 30)),
        st.tuples(st.just("split"), ROWS, st.just(0)),
        st.tuples(st.just("merge"), ROWS, st.integers(0, 5)),
        st.tuples(st.just("pause"), ROWS, st.integers(0, 60)),
        st.tuples(st.just("close"), ROWS, st.integers(0, 4)),
        st.tuples(st.just("open"), ROWS, st.integers(0, 3)),
        st.tuples(st.just("restart"), ROWS, st.just(0)),
        st.tuples(st.just("forget"), ROWS, st.just(0)),
    ),
    max_size=40,
)


class Reconnects:
    """Viewers that lose and find their connections while shards split and merge."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.viewers = {
            "every": MemoryViewer(begin="oldest"),
            "key": MemoryViewer(begin="oldest", key=KEYS[2]),
            "filter": MemoryViewer(begin="oldest", filter=f"pk >= '{KEYS[5]}'"),
            "sampled": MemoryViewer(begin="oldest", mode="sampled"),
            "rows": MemoryViewer(begin="rows"),
        }

    def is_open(self, viewer: MemoryViewer) -> bool:
        """True if a viewer has a connection."""
        return viewer.task is not None and not viewer.task.done()

    async def open(self, viewer: MemoryViewer) -> None:
        """Connect a viewer that is not connected."""
        if not self.is_open(viewer):
            await self.world.console.open(viewer)

    async def step(self, kind: str, name: str, count: int) -> None:
        """Do one thing."""
        world, viewers = self.world, list(self.viewers.values())
        if kind == "write":
            for number in range(count):
                world.write(KEYS[(KEYS.index(name) + number) % len(KEYS)])
        elif kind == "split":
            world.split(name)
        elif kind == "merge":
            world.merge(count)
        elif kind == "pause":
            await asyncio.sleep(count / 100)
        elif kind == "close":
            await viewers[count].close(taken=KEYS.index(name) % 4)
        elif kind == "open":
            await self.open(viewers[count])
        elif kind == "forget":
            world.console.hub.ring.shrink(0)
        else:
            for viewer in viewers:
                if self.is_open(viewer):
                    await viewer.close(taken=KEYS.index(name) % 4)
            await world.console.kill()
            world.start()

    async def finish(self) -> None:
        """Connect all, and check that each has everything once and in order."""
        total = len(self.world.written)
        for viewer in self.viewers.values():
            await self.open(viewer)
        await self.viewers["every"].until(total)
        await self.viewers["sampled"].until(total)
        await asyncio.sleep(10)
        world = self.world
        assert self.viewers["every"].numbers() == world.list_expected()
        assert self.viewers["key"].numbers() == world.list_expected(0, lambda key: key == KEYS[2])
        assert self.viewers["filter"].numbers() == world.list_expected(
            0, lambda key: key >= KEYS[5]
        )
        sampled = self.viewers["sampled"]
        sampled.take()
        assert len(sampled.records) + sampled.left_out == total
        for numbers in sampled.numbers().values():
            assert numbers == sorted(set(numbers))
        rows = self.viewers["rows"]
        rows.take()
        assert replay(rows) == {key: numbers[-1] for key, numbers in world.list_expected().items()}


@given(steps=STEPS)
def test_each_record_comes_once_and_in_order(steps: list[tuple[str, str, int]]) -> None:
    async def story(world: World) -> None:
        reconnects = Reconnects(world)
        for kind, name, count in steps:
            await reconnects.step(kind, name, count)
        await reconnects.finish()

    play(story, ring_bytes_max=6000)
