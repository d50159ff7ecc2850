"""The viewers of a table that are up to date, grouped by what they see.

New pages are collected for each group, and turned into frames once a window is over. All groups of
a mode get their frames at the same moment: that is where a viewer may join its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rowtide.console.feed.feed_lens import FeedLens, FeedMode, FrameWindow, LensKey
from rowtide.console.feed.feed_position import TokenTooLong
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.feed_wire import RECORDS, FeedEncoding
from rowtide.console.feed.frame_pace import find_pause_s
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.page_ring import FeedPage

__all__ = ["LensGroup", "LensGroups", "ShardTest", "TokenMaker"]

ShardTest = Callable[[str, frozenset[str] | None], bool]
"""True if a shard is one of some shards, or a descendant of them; None are all."""
TokenMaker = Callable[[Frontier, frozenset[str] | None], str]
"""Returns the token of a frontier in some shards. Raises ``TokenTooLong``."""


@dataclass(slots=True, eq=False)
class LensGroup:
    """The viewers of one lens, and what they get in the next frame."""

    lens: FeedLens
    window: FrameWindow
    viewers: set[FeedViewer] = field(default_factory=set)


class LensGroups:
    """All groups of one mode."""

    def __init__(self, mode: FeedMode, is_within: ShardTest, make_token: TokenMaker) -> None:
        self.mode = mode
        self.frames = 0
        """Frames that were encoded, each once for all viewers that get it."""
        self._is_within = is_within
        self._make_token = make_token
        self._broad: dict[LensKey, LensGroup] = {}
        self._by_key: dict[bytes, dict[LensKey, LensGroup]] = {}
        self._waiting: set[LensGroup] = set()
        """Groups with matches since the last frames."""
        self._flushed: Frontier | None = None
        """Where the last frames ended, while a group waits for the next ones."""

    def __iter__(self) -> Iterator[LensGroup]:
        yield from list(self._broad.values())
        for groups in list(self._by_key.values()):
            yield from list(groups.values())

    @property
    def has_viewers(self) -> bool:
        """True if a viewer has joined."""
        return bool(self._broad or self._by_key)

    @property
    def has_matches(self) -> bool:
        """True if frames are due once the window is over."""
        return bool(self._waiting)

    def has_waiting(self, group: LensGroup) -> bool:
        """True if a group has matches since its last frame."""
        return group in self._waiting

    def find_goal(self, key: LensKey, head: Frontier) -> Frontier:
        """Return the frontier at which a viewer may join: what its group gets next begins there."""
        group = self._groups_of(key).get(key)
        if group is not None and group in self._waiting and self._flushed is not None:
            return self._flushed
        return head

    def join(self, key: LensKey, viewer: FeedViewer) -> None:
        """Give a viewer that is at ``find_goal`` what comes from now on."""
        groups = self._groups_of(key)
        if key.partition_key is not None:
            self._by_key[key.partition_key] = groups
        if key not in groups:
            groups[key] = LensGroup(FeedLens(key), FrameWindow(self.mode))
        groups[key].viewers.add(viewer)
        viewer.catch_up()

    def leave(self, key: LensKey, viewer: FeedViewer) -> None:
        """Give a viewer nothing more. It need not have joined."""
        groups = self._groups_of(key)
        group = groups.get(key)
        if group is None:
            return
        group.viewers.discard(viewer)
        if not group.viewers:
            del groups[key]
            self._waiting.discard(group)
            if key.partition_key is not None and not groups:
                self._by_key.pop(key.partition_key, None)

    def _groups_of(self, key: LensKey) -> dict[LensKey, LensGroup]:
        if key.partition_key is None:
            return self._broad
        return self._by_key.get(key.partition_key, {})

    def collect(self, page: FeedPage, before: Frontier) -> None:
        """Collect the matches of a new page; ``before`` is the frontier in front of it."""
        had_matches = self.has_matches
        for group in self._broad.values():
            key = group.lens.key
            if key.shards is None or self._is_within(page.shard, key.shards):
                group.lens.fill(group.window, page.records)
                if group.window.count:
                    self._waiting.add(group)
        if self._by_key:
            self._collect_keys(page)
        if self.has_matches and not had_matches:
            self._flushed = before.copy()

    def _collect_keys(self, page: FeedPage) -> None:
        for record in page.records:
            for key, group in self._by_key.get(record.partition_key, {}).items():
                if key.shards is not None and not self._is_within(page.shard, key.shards):
                    continue
                text = group.lens.select(record)
                if text is not None:
                    group.window.add((text,))
                    self._waiting.add(group)

    def flush(self, frontier: Frontier) -> float:
        """Give each group with matches its frame; ``frontier`` is behind all of them.

        Return the time until the next frames, in seconds.
        """
        records = viewers = 0
        waiting, self._waiting = self._waiting, set()
        self._flushed = None
        tokens: dict[frozenset[str] | None, str] = {}
        for group in waiting:
            shards = group.lens.key.shards
            try:
                if shards not in tokens:
                    tokens[shards] = self._make_token(frontier, shards)
            except TokenTooLong as error:
                end_group(group, str(error))
                continue
            records = max(records, group.window.frame_records)
            viewers += len(group.viewers)
            self._give(group, tokens[shards])
        return find_pause_s(self.mode, records=records, viewers=viewers)

    def _give(self, group: LensGroup, token: str) -> None:
        content = group.window.take()
        frames: dict[FeedEncoding, bytes] = {}
        for viewer in list(group.viewers):
            frame = frames.get(viewer.encoding)
            if frame is None:
                frame = viewer.encoding.encode(RECORDS, token, content)
                frames[viewer.encoding] = frame
                self.frames += 1
            viewer.push(frame, token)


def end_group(group: LensGroup, reason: str) -> None:
    """End the feeds of viewers whose position no longer fits a token."""
    for viewer in list(group.viewers):
        more = "Open one feed for each part of the shards with ?shard=NAME."
        viewer.end("end", {"code": "too_many_shards", "reason": f"{reason} {more}"})
