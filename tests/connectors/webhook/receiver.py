"""A real HTTP receiver with planned answers. It checks signatures and keeps accepted messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiohttp import web

__all__ = ["Answer", "Receiver", "receiving"]

SECRET = b"a secret of 24 bytes !!!"


class Answer(NamedTuple):
    """What to answer; ``taken`` says whether the receiver does with the rows what it must."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    text: str = ""
    taken: bool = True


class Receiver:
    """``decide`` is called for each request with a valid signature."""

    def __init__(self) -> None:
        self.url = ""
        self.decide: Callable[[dict[str, Any]], Answer | None] = lambda message: Answer()
        self.taken: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        """Path and message id of each."""
        self.headers: dict[str, str] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Check, decide, keep."""
        body = await request.read()
        self.headers = dict(request.headers)
        self.requests.append((request.path, request.headers["webhook-id"]))
        signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}."
        digest = hmac.new(SECRET, signed.encode() + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(digest).decode()}"
        assert wanted in request.headers["webhook-signature"].split(" ")
        message = json.loads(body)
        answer = self.decide(message)
        if answer is None:
            # Cut off in the middle of an answer.
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if answer.taken and answer.status < 300:
            self.taken.append(message)
        return web.Response(
            status=answer.status, headers=dict(answer.headers), text=answer.text or None
        )


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Give a receiver on a free port of loopback."""
    receiver = Receiver()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/{path:.*}", receiver.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        receiver.url = f"http://{host}:{port}/rows"
        yield receiver
    finally:
        await runner.cleanup()
