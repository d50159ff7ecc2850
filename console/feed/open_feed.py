"""Opens one feed: checks what was asked, and runs it until its viewer leaves or it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from rowtide.client.changes.source import SourceShard
from rowtide.console.feed.access import FeedAccess
from rowtide.console.feed.feed_lens import LensKey
from rowtide.console.feed.feed_position import (
    KIND_OVER,
    KIND_ROWS,
    FeedPosition,
    TokenTooLong,
    decode_token,
    table_tag,
)
from rowtide.console.feed.feed_request import FeedRequest
from rowtide.console.feed.feed_start import find_start
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.rows_first import RowsFirst
from rowtide.console.feed.stream_reading import RETRIED
from rowtide.console.feed.table_hub import TableHub
from rowtide.console.feed.table_hubs import TableHubs
from rowtide.console.feed.viewer_walk import ViewerWalk
from rowtide.console.web.refusals import RequestRefused
from rowtide.core.values import key as key_order
from rowtide.core.values.errors import (
    LogTrimmed,
    Rejected,
    StoreError,
    invalid,
)

__all__ = ["FEEDS_MAX", "FeedOver", "OpenFeed", "OpenFeeds", "resolve_request"]

FEEDS_MAX = 2000
CONFIRM_S = 3.0
RETRY_AFTER_S = 5


class FeedOver(Exception):
    """The token says that its feed has ended for good: there is nothing to reconnect to."""


@dataclass(slots=True, eq=False)
class OpenFeed:
    """One feed that is about to run, or runs. ``rows_from`` is None once its rows are read."""

    access: FeedAccess
    request: FeedRequest
    hub: TableHub
    key: LensKey
    frontier: Frontier
    rows_from: bytes | None = None
    viewer: FeedViewer | None = field(default=None, init=False)

    async def run(self, viewer: FeedViewer) -> None:
        """Write events to a viewer until its feed is over."""
        self.viewer = viewer
        if self.hub.end is not None:
            # It ended between the request and now.
            await self.hub.tell_end(viewer, self.hub.end)
            return
        walk = ViewerWalk(self.hub, viewer, self.key, self.frontier)
        walk.rows_from = self.rows_from
        self.hub.walking.add(walk)
        try:
            async with asyncio.TaskGroup() as tasks:
                viewer.send("ready", self._describe(), walk.make_token())
                walking = tasks.create_task(self._walk(walk), name="feed of one viewer")
                await viewer.over.wait()
                walking.cancel()
        finally:
            viewer.over.set()
            self.hub.walking.discard(walk)
            self.hub.leave(self.key, viewer)

    async def _walk(self, walk: ViewerWalk) -> None:
        if self.rows_from is not None:
            await RowsFirst(walk, self.key.partition_key).run()
        await walk.run()

    def _describe(self) -> dict[str, object]:
        stream = self.hub.stream
        found: dict[str, object] = {
            "instance": stream.instance,
            "table": stream.table,
            "stream": stream.stream_id,
            "mode": self.key.mode,
        }
        if self.request.after:
            found["resumed"] = True
        else:
            found["begin"] = self.request.begin
        if isinstance(self.request.begin, int):
            # Some of what came after that time may be trimmed.
            oldest_us = self.hub.reading.known_now_us - stream.retention_us
            found["trimmed"] = self.request.begin < oldest_us
        return found


class OpenFeeds:
    """All feeds of the console, at most ``feeds_max``."""

    def __init__(self, hubs: TableHubs, *, feeds_max: int = FEEDS_MAX) -> None:
        self.hubs = hubs
        self._feeds_max = feeds_max
        self._places: dict[str, int] = {}
        self._running: set[OpenFeed] = set()

    def __len__(self) -> int:
        return sum(self._places.values())

    @asynccontextmanager
    async def open(self, access: FeedAccess, request: FeedRequest) -> AsyncIterator[OpenFeed]:
        """Yield a feed that may run. Raises ``RequestRefused``, ``StoreError``, ``FeedOver``."""
        if access.key is not None:
            if request.key not in (None, access.key):
                raise Rejected(
                    "OTSNoPermissionAccess", "This token allows another partition key alone."
                )
            request = replace(request, key=access.key)
        with self._take_place(access):
            try:
                hub = await self.hubs.open(access.instance, access.table)
                feed = await resolve_request(access, request, hub)
            except RETRIED as error:
                raise RequestRefused(
                    503, "feed.unavailable", retry_after_s=RETRY_AFTER_S, reason=error.message
                ) from error
            self._running.add(feed)
            try:
                yield feed
            finally:
                self._running.discard(feed)

    @contextmanager
    def _take_place(self, access: FeedAccess) -> Iterator[None]:
        """Count a feed while it runs."""
        if len(self) >= self._feeds_max:
            raise RequestRefused(
                503, "feed.full", retry_after_s=RETRY_AFTER_S, limit=self._feeds_max
            )
        if self._places.get(access.owner, 0) >= access.feeds_max:
            raise RequestRefused(
                429, "feed.session_full", retry_after_s=RETRY_AFTER_S, limit=access.feeds_max
            )
        self._places[access.owner] = self._places.get(access.owner, 0) + 1
        try:
            yield
        finally:
            self._places[access.owner] -= 1
            if not self._places[access.owner]:
                del self._places[access.owner]

    async def confirm_rights(self) -> None:
        """End the feeds whose right has ended, for ever. One check serves all feeds of an owner."""
        while True:
            await asyncio.sleep(CONFIRM_S)
            checked: dict[tuple[str, str, str], str] = {}
            for feed in list(self._running):
                access = feed.access
                name = access.owner, access.instance, access.table
                if name not in checked:
                    checked[name] = await find_refusal(access)
                if checked[name] and feed.viewer is not None:
                    content = {"code": "access_revoked", "reason": checked[name]}
                    feed.viewer.end("end", content)

    def stop(self) -> None:
        """End all feeds because this console stops."""
        content = {"code": "server_stops", "reason": "The console stops. Reconnect in a moment."}
        for feed in list(self._running):
            if feed.viewer is not None:
                feed.viewer.end("end", content)


async def resolve_request(access: FeedAccess, request: FeedRequest, hub: TableHub) -> OpenFeed:
    """Return the feed that a request asks of a hub. Raises ``StoreError`` and ``FeedOver``."""
    key = request.lens_key(hub.stream)
    if request.after:
        position = decode_position_of(hub, request.after)
        frontier = hub.stream.frontier_of(position)
        key = key._replace(shards=await find_roots(hub, frontier, key.shards))
        rows_from = position.rows_from if position.kind == KIND_ROWS else None
        return OpenFeed(access, request, hub, key, frontier, rows_from)
    rows_from = find_first_key(key) if request.begin == "rows" else None
    if request.begin == "latest":
        frontier = hub.find_goal(key).copy()
        if key.shards is not None:
            await find_start(hub.reading, "latest", key.shards)  # Refuses unknown names.
    else:
        frontier = await find_start(hub.reading, request.begin, key.shards)
    require_token(hub, frontier)
    return OpenFeed(access, request, hub, key, frontier, rows_from)


async def find_refusal(access: FeedAccess) -> str:
    """Return why a right has ended; empty if it has not, or if no worker answers."""
    try:
        await access.confirm()
    except Rejected as error:
        # Without the table the hub says why the feed ends.
        is_about_table = isinstance(error, LogTrimmed) or error.code == "OTSObjectNotExist"
        return "" if is_about_table else error.message
    except StoreError:
        pass
    return ""


def decode_position_of(hub: TableHub, token: str) -> FeedPosition:
    """Return the position of a token. Raises OTSParameterInvalid and ``FeedOver``."""
    stream = hub.stream
    tag = table_tag(stream.instance, stream.table)
    position = decode_token(token, tag=tag, enabled_at_us=stream.enabled_at_us)
    if position.kind == KIND_OVER:
        raise FeedOver
    if not position.shards:
        raise invalid("The position names no shard. Start again with ?begin=oldest or latest.")
    return position


async def find_roots(
    hub: TableHub, frontier: Frontier, shards: frozenset[str] | None
) -> frozenset[str] | None:
    """Return the shards that a feed after a token follows with their descendants; None are all.

    Raises OTSParameterInvalid if the token is not of all shards, or not of ``shards`` alone.
    """
    names = frontier.offsets.keys()
    if shards is not None:
        if not all(hub.is_within(name, shards) for name in names):
            raise invalid("The position is of other shards than ?shard= names.")
        return frozenset(names)
    missing = find_missing_shard(names, hub.listed)
    if missing:
        # The token may be newer than what the hub listed last.
        missing = find_missing_shard(names, await hub.reading.list_shards())
    if missing:
        raise invalid(
            f"The position does not have shard {missing}: it is of a feed of some shards. Name "
            f"them with ?shard=NAME."
        )
    return None


def find_missing_shard(names: Collection[str], shards: Sequence[SourceShard]) -> str:
    """Return an open shard that is none of some shards and no descendant; empty if all are."""
    split = {parent for shard in shards for parent in shard.parents}
    known = set(names)
    for shard in shards:
        if known & set(shard.parents):
            known.add(shard.shard_id)
        if shard.shard_id not in split and shard.shard_id not in known:
            return shard.shard_id
    return ""


def find_first_key(key: LensKey) -> bytes:
    """Return the encoded key at which the rows of a feed begin. Raises OTSParameterInvalid."""
    if key.shards is not None:
        raise invalid("begin=rows reads the rows of all shards: leave ?shard= out.")
    return b"" if key.partition_key is None else key_order.encode([key.partition_key])


def require_token(hub: TableHub, frontier: Frontier) -> None:
    """Raise OTSParameterInvalid if a table has more shards than a position may name."""
    try:
        hub.stream.token_of(frontier)
    except TokenTooLong as error:
        raise invalid(
            f"{error} Open one feed for each part of the shards with ?shard=NAME."
        ) from error
