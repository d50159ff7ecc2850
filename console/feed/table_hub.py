"""Reads the stream of one table once for all its viewers.

One task follows each shard, children after all their parents. Each page goes into the ring, and to
the groups of viewers that are up to date. Other viewers walk through the ring and older pages until
they are (``viewer_walk.py``). All of it runs in one event loop, so a viewer that has reached its
group joins it between two pages.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.console.feed.catch_up import CatchUpReader
from rowtide.console.feed.feed_lens import MODES, FeedMode, LensKey
from rowtide.console.feed.feed_position import TokenTooLong
from rowtide.console.feed.feed_start import find_start
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.frame_pace import FRAME_S_MAX, FramePace
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.lens_groups import LensGroups
from rowtide.console.feed.page_ring import FeedPage, PageRing
from rowtide.console.feed.stream_reading import (
    READ_RECORDS_MAX,
    RETRIED,
    WAIT_S,
    StreamReading,
    TableStream,
)
from rowtide.core.values.errors import (
    Rejected,
    StoreError,
    Unavailable,
    first_failure,
)

__all__ = ["RING_BYTES_MAX", "FeedEnd", "FeedEndFinder", "TableHub", "WalkingViewer"]

logger = logging.getLogger(__name__)

RING_BYTES_MAX = 64 * 1024 * 1024
TICK_S = 1.0
QUIET_S_MAX = 4.5
"""A viewer that got nothing for so long gets its position; with the tick it is never 6 s old."""
BEHIND_S = 3.0
"""A stream that cannot be read for so long is reported to its viewers."""
RETRY_S, RETRY_S_MAX = 0.1, 1.0
BUSY_RECORDS, BUSY_PAUSE_S = 5, 0.02
"""After a page of so many records the next read waits: the worker then answers fewer reads."""
NOW_EVERY_S = 5.0
CHANGE_S_MAX = 1.0


class FeedEnd(NamedTuple):
    """Why feeds end: the event that says so, ``end`` or ``expired``, a code, and words."""

    event: str
    code: str
    reason: str


FeedEndFinder = Callable[[Rejected], Awaitable[FeedEnd]]
"""Finds out what became of a table whose stream refuses to be read."""


class WalkingViewer(Protocol):
    """A viewer that is not up to date yet."""

    @property
    def viewer(self) -> FeedViewer:
        """Return the viewer."""
        ...

    def beat(self) -> None:
        """Write the position, if nothing was written for long."""
        ...


class TableHub:
    """One table's stream. ``frontier`` is where it is read; ``end`` says why it ended, if it did.

    ``begins`` are the first offsets of shards whose parents were read here. ``walking`` are the
    viewers that are not up to date.
    """

    def __init__(
        self,
        stream: TableStream,
        source: ChangeSource,
        find_end: FeedEndFinder,
        *,
        ring_bytes_max: int = RING_BYTES_MAX,
    ) -> None:
        self.stream = stream
        self.reading = StreamReading(stream, source)
        self.ring = PageRing(ring_bytes_max)
        self.catch_up = CatchUpReader(self.reading)
        self.frontier = Frontier()
        self.begins: dict[str, int] = {}
        self.groups = {mode: LensGroups(mode, self.is_within, self.token_of) for mode in MODES}
        self.walking: set[WalkingViewer] = set()
        self.end: FeedEnd | None = None
        self.find_end = find_end
        self.listed: list[SourceShard] = []
        """The shards of the stream, as they were listed last."""
        self._parents: dict[str, tuple[str, ...]] = {}
        self._paces = {mode: FramePace() for mode in MODES}
        self._timers: dict[FeedMode, asyncio.TimerHandle] = {}
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: StoreError | None = None
        self._failing: dict[str, tuple[float, str]] = {}
        """What cannot be read: since when, by the loop's clock, and why."""
        self._was_behind = False
        self._beginning = asyncio.Lock()

    # Reading.

    async def run(self) -> None:
        """Read until cancelled, or until the stream has ended for its viewers."""
        try:
            await self._start()
            async with asyncio.TaskGroup() as tasks:
                for shard in self.frontier.offsets:
                    self._follow_in(tasks, shard)
                tasks.create_task(self.catch_up.run(), name="catch-up reader")
                tasks.create_task(self._keep_time(), name="server time")
                tasks.create_task(self._tick(), name="positions")
        except* StoreError as group:
            failure = first_failure(group)
            assert isinstance(failure, StoreError), "the group has no other"
            await self._conclude(failure)
        finally:
            for timer in self._timers.values():
                timer.cancel()

    async def _start(self) -> None:
        self._note_shards(await self.reading.list_shards())
        self.frontier = await find_start(self.reading, "latest")
        self._ready.set()

    async def wait_ready(self) -> None:
        """Return once the stream is read. Raises ``StoreError`` if it cannot be."""
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure

    async def _conclude(self, failure: StoreError) -> None:
        """Tell all viewers why the feed ends."""
        if not self._ready.is_set():
            self._failure = failure
            self._ready.set()
            return
        logger.info("feed of table %s ends: %s", self.stream.table, failure)
        assert isinstance(failure, Rejected), "other failures are retried"
        self.end = await self.find_end(failure)
        for viewer in self._viewers():
            await self.tell_end(viewer, self.end)

    def _viewers(self) -> Iterator[FeedViewer]:
        for groups in self.groups.values():
            for group in groups:
                yield from list(group.viewers)
        for walk in list(self.walking):
            yield walk.viewer

    def _follow_in(self, tasks: asyncio.TaskGroup, shard: str) -> None:
        tasks.create_task(self._follow(tasks, shard), name=f"feed of shard {shard}")

    async def _follow(self, tasks: asyncio.TaskGroup, shard: str) -> None:
        """Read a shard to its end, then begin its children."""
        retry_s = RETRY_S
        while True:
            try:
                page = await self.reading.read(shard, self.frontier.offsets[shard], wait_s=WAIT_S)
            except RETRIED as error:
                retry_s = await self._pause(shard, error, retry_s)
                continue
            self._failing.pop(shard, None)
            retry_s = RETRY_S
            self._take(page)
            if page.has_ended:
                break
            if (pause_s := self._find_read_pause_s(len(page.records))) > 0:
                await asyncio.sleep(pause_s)
        await self._begin_children(tasks)

    def _find_read_pause_s(self, records: int) -> float:
        """Return how long the read after a page waits, under load.

        Viewers get what it would return no sooner than their next frame.
        """
        if not BUSY_RECORDS <= records < READ_RECORDS_MAX:
            return 0.0
        now_s = asyncio.get_running_loop().time()
        reads_s = [
            self._paces[mode].find_read_s(now_s)
            for mode, groups in self.groups.items()
            if groups.has_viewers
        ]
        return max(BUSY_PAUSE_S, min(reads_s) - now_s) if reads_s else FRAME_S_MAX

    async def _pause(self, what: str, error: StoreError, retry_s: float) -> float:
        """Wait before a retry; return how long to wait before the next one."""
        logger.debug("feed of table %s, %s: %s", self.stream.table, what, error)
        self._failing.setdefault(what, (asyncio.get_running_loop().time(), str(error)))
        await asyncio.sleep(retry_s)
        return min(2 * retry_s, RETRY_S_MAX)

    async def _begin_children(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the shards whose parents are all read."""
        async with self._beginning:
            children = await self._find_children()
            self.frontier.begin_children(children)
            self.begins |= {child.shard_id: offset for child, offset in children}
            for child, _ in children:
                self._follow_in(tasks, child.shard_id)
            self._note_change()

    async def _find_children(self) -> list[tuple[SourceShard, int]]:
        retry_s = RETRY_S
        while True:
            try:
                shards = await self.reading.list_shards()
                self._note_shards(shards)
                self._require_children(shards)
                begun = self.frontier.find_children(shards)
                children = await self.find_first_offsets(begun, self.frontier)
            except RETRIED as error:
                retry_s = await self._pause("children", error, retry_s)
                continue
            self._failing.pop("children", None)
            return children

    def _require_children(self, shards: list[SourceShard]) -> None:
        """Raise ``Unavailable`` if the worker does not list the children of an ended shard yet."""
        for shard in self.frontier.ended:
            if not any(shard in child.parents for child in shards):
                raise Unavailable(f"The shards that follow shard {shard} are not listed yet.")

    async def find_first_offsets(
        self, children: Iterable[SourceShard], frontier: Frontier
    ) -> list[tuple[SourceShard, int]]:
        """Return where shards begin whose parents are read. Raises ``LogTrimmed``."""
        return [(child, await self._find_first_offset(child, frontier)) for child in children]

    async def _find_first_offset(self, child: SourceShard, frontier: Frontier) -> int:
        known = self.begins.get(child.shard_id)
        if known is not None:
            return known
        times = [frontier.times[name] for name in child.parents if name in frontier.times]
        return await self.reading.find_first_offset(child.shard_id, max(times, default=0))

    def _note_shards(self, shards: list[SourceShard]) -> None:
        self.listed = shards
        self._parents |= {shard.shard_id: shard.parents for shard in shards}

    def is_within(self, shard: str, shards: frozenset[str] | None) -> bool:
        """True if a shard is one of some shards, or a descendant of them; None are all."""
        if shards is None or shard in shards:
            return True
        return any(self.is_within(parent, shards) for parent in self._parents.get(shard, ()))

    # Giving.

    def _take(self, page: FeedPage) -> None:
        """Give a new page to the ring and to the groups."""
        moved = page.end > page.begin or page.has_ended
        if moved:
            for groups in self.groups.values():
                groups.collect(page, self.frontier)
            for record in page.records:
                record.forget_row()
            self.ring.add(page)
        self.frontier.advance(page.shard, page.end, page.time_us, has_ended=page.has_ended)
        if moved:
            self._note_change()
            self._flush_in_time()

    def _flush_in_time(self) -> None:
        """Send the frames that are due, and set a timer for those that are not."""
        loop = asyncio.get_running_loop()
        for mode, groups in self.groups.items():
            if not groups.has_matches or mode in self._timers:
                continue
            due_s = self._paces[mode].due_s
            if loop.time() >= due_s:
                self._flush(mode)
            else:
                self._timers[mode] = loop.call_at(due_s, self._flush, mode)

    def _flush(self, mode: FeedMode) -> None:
        self._timers.pop(mode, None)
        pause_s = self.groups[mode].flush(self.frontier)
        self._paces[mode].note_frames(asyncio.get_running_loop().time(), pause_s)
        self._note_change()

    def token_of(self, frontier: Frontier, shards: frozenset[str] | None) -> str:
        """Return the token of a frontier in some shards. Raises ``TokenTooLong``."""
        return self.stream.token_of(self.restrict(frontier, shards))

    def restrict(self, frontier: Frontier, shards: frozenset[str] | None) -> Frontier:
        """Return the part of a frontier that is in some shards and their descendants."""
        if shards is None:
            return frontier
        return frontier.restrict(name for name in frontier.offsets if self.is_within(name, shards))

    def find_goal(self, key: LensKey) -> Frontier:
        """Return the frontier at which a viewer may join its group now."""
        return self.restrict(self.groups[key.mode].find_goal(key, self.frontier), key.shards)

    def join(self, key: LensKey, viewer: FeedViewer) -> None:
        """Give a viewer that is at ``find_goal`` what comes from now on."""
        self.groups[key.mode].join(key, viewer)

    def leave(self, key: LensKey, viewer: FeedViewer) -> None:
        """Give a viewer nothing more."""
        self.groups[key.mode].leave(key, viewer)

    @property
    def viewer_count(self) -> int:
        """Return the number of viewers."""
        return sum(1 for _ in self._viewers())

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_change(self) -> None:
        """Return after a page or a frame, or after a second."""
        try:
            async with asyncio.timeout(CHANGE_S_MAX):
                await self._changed.wait()
        except TimeoutError:
            pass

    # Time.

    async def _keep_time(self) -> None:
        while True:
            try:
                await self.reading.now_us()
            except StoreError as error:
                logger.debug("feed of table %s: no server time: %s", self.stream.table, error)
            await asyncio.sleep(NOW_EVERY_S)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._beat()
            self.ring.forget_keys()

    def _beat(self) -> None:
        """Write the position to all viewers that got nothing for long; end those that are slow."""
        is_behind = self.find_delay() is not None
        changed, self._was_behind = is_behind != self._was_behind, is_behind
        now_s = asyncio.get_running_loop().time()
        tokens: dict[frozenset[str] | None, str] = {}
        for groups in self.groups.values():
            for group in groups:
                due = [one for one in group.viewers if changed or one.is_due(now_s, QUIET_S_MAX)]
                if not due or groups.has_waiting(group):
                    continue
                shards = group.lens.key.shards
                if shards not in tokens:
                    tokens[shards] = self._find_token(shards)
                for viewer in due if tokens[shards] else ():
                    self.beat_viewer(viewer, tokens[shards], at_once=changed)
        for walk in list(self.walking):
            walk.beat()

    def _find_token(self, shards: frozenset[str] | None) -> str:
        """Return the token of the frontier; empty if it has none: the next frame ends the feeds."""
        try:
            return self.token_of(self.frontier, shards)
        except TokenTooLong:
            return ""

    def beat_viewer(self, viewer: FeedViewer, token: str, *, at_once: bool = False) -> None:
        """Write the position to a viewer that got nothing for long, and why nothing comes."""
        if not viewer.check() or not (at_once or viewer.is_quiet(QUIET_S_MAX)):
            return
        delay = self.find_delay()
        if delay is None:
            viewer.send_position(token)
        else:
            viewer.send("behind", delay, token)

    def find_delay(self) -> dict[str, object] | None:
        """Return since when (seconds) and why the stream cannot be read; None if it can."""
        now_s = asyncio.get_running_loop().time()
        for since_s, reason in self._failing.values():
            if now_s - since_s > BEHIND_S:
                return {"behind_s": round(now_s - since_s, 1), "reason": reason}
        return None

    async def tell_end(self, viewer: FeedViewer, end: FeedEnd) -> None:
        """Write a viewer's last event. After ``expired`` it names the oldest position."""
        content: dict[str, object] = {"code": end.code, "reason": end.reason}
        if end.event == "expired":
            oldest = await find_start(self.reading, "oldest")
            content["oldest"] = self.stream.token_of(oldest)
            viewer.end(end.event, content, self.stream.over_token)
        else:
            viewer.end(end.event, content)
