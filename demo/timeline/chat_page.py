"""The chat in a browser: a small web server in front of the console's live feed.

A page gets a share token for the inbox of its user, and follows it through this server. The server
passes the feed on as it is; the console decides what a token may read. Texts are read from the
store table, and only for members whose token this server knows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from demo.timeline.group_chat import GROUP, GroupChat

__all__ = ["ChatPage", "FeedAnswer", "read_feed"]

PAGE = Path(__file__).with_name("chat.html")
BEARER = "Bearer "
PASSED_ON = ("Authorization", "Last-Event-ID")
IDS_MAX = 100
STOP_S_MAX = 2.0


class ChatPage:
    """Serves the page. ``tokens`` are the share tokens by user; ``console`` is an address."""

    def __init__(
        self, chat: GroupChat, console: str, instance: str, tokens: Mapping[str, str]
    ) -> None:
        self._chat = chat
        self._console = console
        self._feed = f"/stream/{instance}/{chat.sync.schema.table}"
        self._users = {token: user for user, token in tokens.items()}

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve on a free port of this machine, and yield the address."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/", self._show),
                web.get("/me", self._tell_user),
                web.get("/messages", self._read_messages),
                web.post("/messages", self._send_message),
                web.get(self._feed, self._pass_feed),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=STOP_S_MAX)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _show(self, _request: web.Request) -> web.FileResponse:
        return web.FileResponse(PAGE)

    async def _tell_user(self, request: web.Request) -> web.Response:
        return web.json_response({"user": self._find_user(request), "feed": self._feed})

    async def _read_messages(self, request: web.Request) -> web.Response:
        """Answer with the messages of ``?ids=1,2``; null for a recalled one."""
        await self._find_member(request)
        ids = [int(text) for text in request.query.get("ids", "").split(",") if text.isdecimal()]
        found = await self._chat.store.get_many([(GROUP, id) for id in ids[:IDS_MAX]])
        return web.json_response([None if entry is None else entry.fields for entry in found])

    async def _send_message(self, request: web.Request) -> web.Response:
        user, given = await self._find_member(request), await request.json()
        message = {"sender": user, "text": str(given["text"])}
        sent = await self._chat.group.send(message, message_id=str(given["message_id"]))
        return web.json_response({"id": sent.id})

    async def _pass_feed(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(self._console + request.path_qs, headers=headers) as answer,
        ):
            kind = {"Content-Type": answer.headers["Content-Type"]}
            response = web.StreamResponse(status=answer.status, headers=kind)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            return response

    async def _find_member(self, request: web.Request) -> str:
        """Return the user of a request who is in the group. Raises 403."""
        user = self._find_user(request)
        if user not in [member async for member in self._chat.members.of(GROUP)]:
            raise web.HTTPForbidden(text=f"{user} is not in {GROUP}.")
        return user

    def _find_user(self, request: web.Request) -> str:
        """Return the user whose token a request has. Raises 403."""
        token = request.headers.get("Authorization", "").removeprefix(BEARER)
        if token not in self._users:
            raise web.HTTPForbidden(text="This page needs a link with a share token.")
        return self._users[token]


class FeedAnswer(NamedTuple):
    """The status of a feed, and the ids of the messages that its rows refer to."""

    status: int
    ids: Sequence[int]


async def read_feed(url: str, token: str, *, key: str | None = None) -> FeedAnswer:
    """Return what a page gets of an inbox: the rows that it has when the feed begins."""
    query = {"begin": "rows", "format": "ndjson"} | ({} if key is None else {"key": key})
    headers = {"Authorization": BEARER + token}
    async with aiohttp.ClientSession(headers=headers, raise_for_status=False) as session:
        async with session.get(f"{url}/me") as answer:
            feed = (await answer.json())["feed"]
        async with session.get(url + feed, params=query) as answer:
            ids: list[int] = []
            async for line in answer.content:
                event = json.loads(line)
                if event.get("event") != "rows":
                    continue
                ids += [row["columns"]["message_id"] for row in event["data"]["rows"]]
                if event["data"]["done"]:
                    break
            return FeedAnswer(answer.status, ids)
