"""Takes one viewer from its position through kept and older pages, until it is up to date.

The viewer gets every record that its lens selects, in the order of each shard, children after their
parents. It joins its group at the moment at which both are at the same offsets of the same shards.
"""

from __future__ import annotations

import asyncio

from rowtide.console.feed.feed_lens import EVERY, FeedLens, FrameWindow, LensKey
from rowtide.console.feed.feed_position import KIND_ROWS, TokenTooLong, encode_token
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.feed_wire import RECORDS
from rowtide.console.feed.frame_pace import find_pause_s
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.page_ring import FeedPage
from rowtide.console.feed.stream_reading import RETRIED
from rowtide.console.feed.table_hub import TableHub
from rowtide.core.values.errors import Rejected

__all__ = ["ViewerWalk"]

RETRY_S = 0.5
PAGES_MAX = 10
"""Pages out of memory before other viewers get their turn."""


class ViewerWalk:
    """One viewer on its way. ``frontier`` is where it is; it becomes the walk's own.

    While it still gets the rows that it began with, ``rows_from`` is the first key of those left.
    """

    def __init__(self, hub: TableHub, viewer: FeedViewer, key: LensKey, frontier: Frontier) -> None:
        self.viewer = viewer
        self.frontier = frontier
        self.rows_from: bytes | None = None
        self.lens = FeedLens(key)
        self.hub = hub
        self._key = key
        self._window = FrameWindow(key.mode)
        self._due_s = 0.0
        """When the next frame may be written, by the loop's clock."""
        self._pages = 0

    async def run(self) -> None:
        """Return when the viewer has joined its group, or its feed is over."""
        try:
            while not self.viewer.is_over:
                goal = self.hub.find_goal(self._key)
                if not self.frontier.is_at(goal):
                    await self._step(goal)
                elif self._is_due():
                    self._emit()
                    self.hub.join(self._key, self.viewer)
                    return
                else:
                    await asyncio.sleep(self._due_s - self._now_s())
        except Rejected as error:
            await self.hub.tell_end(self.viewer, await self.hub.find_end(error))
        except TokenTooLong as error:
            self.viewer.end("end", {"code": "too_many_shards", "reason": str(error)})
        finally:
            self.hub.walking.discard(self)

    async def _step(self, goal: Frontier) -> None:
        """Move on in each shard by a page, towards the goal, which only ever moves on itself."""
        try:
            moved = False
            for shard in list(self.frontier.offsets):
                moved = await self._move(shard, goal) or moved
            moved = await self._begin_children(goal) or moved
        except RETRIED:
            await asyncio.sleep(RETRY_S)
            return
        if self._key.mode == EVERY or self._is_due():
            self._emit()
            await self.viewer.drain()
        if not moved:
            await self.hub.wait_change()
        if self._pages >= PAGES_MAX:
            self._pages = 0
            await asyncio.sleep(0)

    async def _move(self, shard: str, goal: Frontier) -> bool:
        """Take what the next page of a shard has before the goal. True if that is something."""
        offset = self.frontier.offsets[shard]
        until = goal.offsets.get(shard)
        is_at_goal = until is not None and offset >= until and shard not in goal.ended
        if shard in self.frontier.ended or is_at_goal:
            return False
        page = self.hub.ring.find(shard, offset) or await self.hub.catch_up.read(shard, offset)
        self._pages += 1
        return self._take(page, offset, goal)

    def _take(self, page: FeedPage, offset: int, goal: Frontier) -> bool:
        end = min(page.end, goal.offsets.get(page.shard, page.end))
        has_ended = page.has_ended and end == page.end
        if page.shard in goal.offsets and page.shard not in goal.ended:
            has_ended = False
        if end <= offset and not has_ended:
            return False
        records = page.slice_records(offset, end, self._key.partition_key)
        self.lens.fill(self._window, records)
        for record in page.records:
            record.forget_row()
        time_us = page.time_us if end == page.end else 0
        self.frontier.advance(page.shard, max(offset, end), time_us, has_ended=has_ended)
        return True

    async def _begin_children(self, goal: Frontier) -> bool:
        """Begin the shards whose parents are read, unless the goal is in those parents itself."""
        if not self.frontier.ended - goal.offsets.keys():
            return False
        shards = await self.hub.reading.list_shards()
        begun = [
            child
            for child in self.frontier.find_children(shards)
            if not goal.offsets.keys() & set(child.parents)
        ]
        children = await self.hub.find_first_offsets(begun, self.frontier)
        self.frontier.begin_children(children)
        return bool(children)

    def _is_due(self) -> bool:
        """True if nothing is to be written, or the last frame was long enough ago."""
        return not self._window.count or self._now_s() >= self._due_s

    def make_token(self) -> str:
        """Return the token of where the viewer is. Raises ``TokenTooLong``."""
        position = self.hub.stream.position_of(self.frontier)
        if self.rows_from is not None:
            position = position._replace(kind=KIND_ROWS, rows_from=self.rows_from)
        return encode_token(position)

    def _emit(self) -> None:
        """Write a frame of what was selected since the last one, if anything."""
        if self._window.count:
            token = self.make_token()
            records = self._window.frame_records
            content = self._window.take()
            self._due_s = self._now_s() + find_pause_s(self._key.mode, records=records, viewers=1)
            self.viewer.push(self.viewer.encoding.encode(RECORDS, token, content), token)

    def beat(self) -> None:
        """Write the position, if nothing was written for long."""
        if self._window.count == 0:
            try:
                token = self.make_token()
            except TokenTooLong:
                return  # The next step ends the feed.
            self.hub.beat_viewer(self.viewer, token)
        elif self._is_due():
            self._emit()

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()
