"""A table in memory behind the seam of change sources, and viewers that note what they get."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from multidict import MultiDict

from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.console.feed.access import FeedAccess
from rowtide.console.feed.feed_request import parse_request
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.feed_wire import PLAIN_NDJSON
from rowtide.console.feed.open_feed import OpenFeed, resolve_request
from rowtide.console.feed.stream_reading import TableStream
from rowtide.console.feed.table_hub import FeedEnd, TableHub
from rowtide.core.records.position import decode_position
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import LogTrimmed, Rejected, StoreError
from rowtide.core.values.schema import STRING, KeyColumn
from tests.changes.virtual_table import Table
from tests.support.waiting import until_async

__all__ = [
    "ACCESS",
    "HOUR_US",
    "STREAM",
    "Console",
    "MemorySource",
    "MemoryViewer",
    "MemoryWire",
    "key_of",
]

HOUR_US = 3600 * 1_000_000
STREAM = TableStream("Inst", "t", "t_1", 1, 24 * HOUR_US, (KeyColumn("pk", STRING),))


def key_of(name: str) -> bytes:
    """Return the encoded key of a row."""
    return key_order.encode([variant.encode(name)])


async def allow() -> None:
    """Confirm a right."""


ACCESS = FeedAccess(instance="inst", table="t", owner="test", feeds_max=100, confirm=allow)


class MemorySource:
    """A ``ChangeSource`` over a table of the tests. ``failure`` is raised by every read, if set.

    ``reads`` counts the reads that found something. ``kept`` are the first offsets that are kept.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.failure: StoreError | None = None
        self.reads = 0
        self.kept: dict[str, int] = {}
        self.now_at_least_us = 0
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        """Wake the readers that wait for something new."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        self._check()
        return max(self.table.stamp + 1, self.now_at_least_us)

    async def shards(self) -> list[SourceShard]:
        await asyncio.sleep(0.001)
        self._check()
        return [logged.shard for logged in self.table.shards]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        await asyncio.sleep(0.001)
        self._check()
        found = self.table.position(shard_id, since_us)
        at = decode_position(found)
        kept = max(at.offset, self.kept.get(shard_id, 0))
        return found.replace(f":{at.offset:x}", f":{kept:x}") if kept != at.offset else found

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        changed = self._changed
        await asyncio.sleep(0.001)
        page = self._page(position, limit)
        if not page.changes and page.following is not None and wait_s > 0:
            try:
                async with asyncio.timeout(wait_s):
                    await changed.wait()
            except TimeoutError:
                pass
            page = self._page(position, limit)
        self.reads += bool(page.changes)
        return page

    def _page(self, position: str, limit: int) -> ChangePage:
        self._check()
        at = decode_position(position)
        if at.shard_id not in [logged.shard.shard_id for logged in self.table.shards]:
            raise LogTrimmed
        if at.offset < self.kept.get(at.shard_id, 0):
            raise LogTrimmed
        return self.table.read(position, limit)

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        await asyncio.sleep(0.001)
        self._check()
        return self.table.page(shard_id, begin, end, min(limit, 3))

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        raise AssertionError("a feed has no consumer")


class MemoryWire:
    """Keeps frames. ``pending_bytes`` is what a test says that the kernel has not taken."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.pending_bytes = 0
        self.is_closed = False
        self.is_stuck = False

    def write(self, frame: bytes) -> None:
        self.frames.append(frame)
        if self.is_stuck:
            self.pending_bytes += len(frame)

    def abort(self) -> None:
        self.is_closed = True

    def events(self) -> list[dict[str, Any]]:
        """Return the events of NDJSON frames."""
        return [json.loads(frame) for frame in self.frames]


class Console:
    """One console process: a hub over a source, as a task of ``tasks``."""

    def __init__(
        self, tasks: asyncio.TaskGroup, source: MemorySource, *, ring_bytes_max: int = 1 << 26
    ) -> None:
        self.found_end = FeedEnd("expired", "expired", "trimmed")
        self.hub = TableHub(STREAM, source, self._find_end, ring_bytes_max=ring_bytes_max)
        self._tasks = tasks
        self.running = tasks.create_task(self.hub.run())
        self.viewers: list[MemoryViewer] = []

    async def _find_end(self, error: Rejected) -> FeedEnd:
        return self.found_end

    async def kill(self) -> None:
        """End it as a crash would: no viewer gets a word."""
        for viewer in self.viewers:
            await viewer.close()
        self.running.cancel()
        await asyncio.wait([self.running])

    async def open(self, viewer: MemoryViewer) -> OpenFeed:
        """Give a viewer what it asks for. Raises ``StoreError``."""
        await self.hub.wait_ready()
        request = parse_request(viewer.parameters, viewer.token, "application/x-ndjson")
        feed = await resolve_request(ACCESS, request, self.hub)
        viewer.begin(self._tasks, feed)
        self.viewers.append(viewer)
        return feed


class MemoryViewer:
    """One viewer that reconnects with the last id. ``records`` is all that it got, in order."""

    def __init__(self, **parameters: str) -> None:
        self.parameters = MultiDict(parameters)
        self.token = ""
        self.records: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.left_out = 0
        self.events: list[dict[str, Any]] = []
        self.wire = MemoryWire()
        self.feed_viewer: FeedViewer | None = None
        self.task: asyncio.Task[None] | None = None
        self._taken = 0

    def begin(self, tasks: asyncio.TaskGroup, feed: OpenFeed) -> None:
        """Run a feed on a new connection."""
        self.wire, self._taken = MemoryWire(), 0
        loop = asyncio.get_running_loop()
        self.feed_viewer = FeedViewer(self.wire, PLAIN_NDJSON, loop.time)
        self.task = tasks.create_task(feed.run(self.feed_viewer))

    def take(self, count: int | None = None) -> None:
        """Receive so many of the events that were written, or all."""
        frames = self.wire.frames[self._taken :][:count]
        self._taken += len(frames)
        for frame in frames:
            event = json.loads(frame)
            self.events.append(event)
            self.token = event.get("id", self.token)
            content = event.get("data", {})
            self.records += content.get("records", [])
            self.rows += content.get("rows", [])
            self.left_out += content.get("left_out", 0)

    async def close(self, *, taken: int | None = None) -> None:
        """Lose the connection after ``taken`` more events; what follows is lost with it."""
        self.take(taken)
        self.wire.is_closed = True
        if self.feed_viewer is not None and self.task is not None:
            self.feed_viewer.check()
            await asyncio.wait([self.task])

    @property
    def names(self) -> list[str]:
        """Return the events that came, by name."""
        self.take()
        return [event["event"] for event in self.events]

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of each key in the order in which they came."""
        self.take()
        found: dict[str, list[int]] = defaultdict(list)
        for record in self.records:
            found[record["key"]["pk"]].append(record["columns"].get("n", 0))
        return dict(found)

    async def until(self, count: int) -> None:
        """Return once so many records came."""

        def has_all() -> bool:
            self.take()
            return len(self.records) + self.left_out >= count

        await until_async(has_all, lambda: f"{len(self.records)} of {count}: {self.events[-3:]}")
