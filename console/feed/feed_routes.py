"""``GET /stream/INSTANCE/TABLE``: a table's changes as Server-Sent Events, NDJSON or WebSocket.

``GET /stream`` is a WebSocket with any number of feeds (``feed_socket.py``).
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from rowtide.console.feed.access import TOKENS, authorize, require_origin
from rowtide.console.feed.feed_request import parse_request
from rowtide.console.feed.feed_socket import MESSAGE_BYTES_MAX, FeedSocket
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.feed_wire import (
    NDJSON,
    PLAIN_NDJSON,
    PLAIN_SSE,
    SSE,
    WEBSOCKET,
    FeedEncoding,
    TransportWire,
)
from rowtide.console.feed.open_feed import FeedOver, OpenFeed, OpenFeeds
from rowtide.console.feed.table_hubs import TableHubs
from rowtide.console.web.routes import CALLS, SETTINGS, STOPPING, TASKS, WebRoute
from rowtide.console.workers.tokens import ShareTokens
from rowtide.core.values.errors import invalid

__all__ = ["FEEDS", "FEED_ROUTES", "start_feeds"]

FEEDS = web.AppKey("FEEDS", OpenFeeds)
SEND_BUFFER_BYTES = 128 * 1024
"""What the kernel holds for a viewer, besides its queue in this process."""
CLOSE_S_MAX = 10.0
"""A viewer has this long to take its last events."""
ENCODINGS: dict[str, tuple[FeedEncoding, FeedEncoding]] = {
    "sse": (SSE, PLAIN_SSE),
    "ndjson": (NDJSON, PLAIN_NDJSON),
}
"""By a request's format: for HTTP/1.1, and for HTTP/1.0."""


async def start_feeds(app: web.Application) -> None:
    """Start what feeds need, in the tasks of the application."""
    settings, calls, tasks = app[SETTINGS], app[CALLS], app[TASKS]
    hubs = TableHubs(
        tasks,
        lambda instance: calls.endpoint_of(settings.own_key, instance),
        settings.hidden_columns,
    )
    app[TOKENS] = ShareTokens(calls, settings.own_key, settings.instance)
    feeds = app[FEEDS] = OpenFeeds(hubs)
    tasks.create_task(hubs.run(), name="feeds without viewers")
    tasks.create_task(feeds.confirm_rights(), name="rights of feeds")
    tasks.create_task(_stop_feeds(app[STOPPING], feeds), name="end of feeds")


async def _stop_feeds(stopping: asyncio.Event, feeds: OpenFeeds) -> None:
    await stopping.wait()
    feeds.stop()


async def follow_table(request: web.Request) -> web.StreamResponse:
    """Answer with a feed, or refuse it."""
    instance, table = request.match_info["instance"], request.match_info["table"]
    access = await authorize(request, instance, table)
    last_event_id = request.headers.get("Last-Event-ID", "")
    wanted = parse_request(request.query, last_event_id, request.headers.get("Accept", ""))
    if request.method == "HEAD":
        return web.Response(content_type=SSE.content_type)
    try:
        async with request.app[FEEDS].open(access, wanted) as feed:
            if is_websocket(request):
                return await _serve_websocket(request, feed)
            return await _serve_response(request, feed)
    except FeedOver:
        return web.Response(status=204)


async def _serve_response(request: web.Request, feed: OpenFeed) -> web.StreamResponse:
    chunked, plain = ENCODINGS[feed.request.format]
    encoding = chunked if request.version >= (1, 1) else plain
    headers = {"Content-Type": encoding.content_type, "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    response.force_close()
    await response.prepare(request)
    await response.write(b"")  # The head.
    await _run(request, feed, encoding)
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await response.write_eof()
    except (TimeoutError, ConnectionError):
        pass
    return response


async def follow_many(request: web.Request) -> web.StreamResponse:
    """Answer with a WebSocket on which the viewer opens feeds."""
    if not is_websocket(request):
        raise invalid("This address is a WebSocket. One feed is at /stream/INSTANCE/TABLE.")
    require_origin(request)
    response = await _open_websocket(request)
    wire = _make_wire(request)
    if wire is not None:
        async with asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(
                _close_at(request.app[STOPPING], response), name="socket at the end"
            )
            await FeedSocket(request, request.app[FEEDS], wire, tasks).run(response)
            closing.cancel()
    return response


async def _close_at(stopping: asyncio.Event, response: web.WebSocketResponse) -> None:
    await stopping.wait()
    await response.close()


def is_websocket(request: web.Request) -> bool:
    """True if a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


async def _open_websocket(request: web.Request) -> web.WebSocketResponse:
    # Compression would need one state for each viewer, and frames are shared.
    response = web.WebSocketResponse(compress=False, max_msg_size=MESSAGE_BYTES_MAX)
    await response.prepare(request)
    return response


async def _serve_websocket(request: web.Request, feed: OpenFeed) -> web.StreamResponse:
    response = await _open_websocket(request)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(_await_close(response, feed), name="WebSocket's end")
        await _run(request, feed, WEBSOCKET)
        reading.cancel()
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await response.close()
    except TimeoutError:
        pass
    return response


async def _await_close(response: web.WebSocketResponse, feed: OpenFeed) -> None:
    """Read, and ignore, what the viewer sends until it closes the connection."""
    async for _ in response:
        pass
    if feed.viewer is not None:
        feed.viewer.over.set()


def _make_wire(request: web.Request) -> TransportWire | None:
    """Return the connection of a request; None if it is lost."""
    transport = request.transport
    if transport is None:
        return None
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return TransportWire(transport)


async def _run(request: web.Request, feed: OpenFeed, encoding: FeedEncoding) -> None:
    """Write the events of a feed to the request's connection."""
    wire = _make_wire(request)
    if wire is None:
        return
    loop = asyncio.get_running_loop()
    await feed.run(FeedViewer(wire, encoding, loop.time))
    if wire.pending_bytes:
        loop.call_later(CLOSE_S_MAX, wire.abort)


FEED_ROUTES = (
    WebRoute("GET", "/stream", follow_many, needs_session=False, has_json=False),
    WebRoute(
        "GET", "/stream/{instance}/{table}", follow_table, needs_session=False, has_json=False
    ),
)
