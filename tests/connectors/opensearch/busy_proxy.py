"""A proxy before a search server that says "too busy" to documents, as a full queue does.

The server's own queues are hard to fill on purpose. Of a bulk request the proxy passes on some
documents and answers 429 for the others, in the server's own words.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

__all__ = ["BusyProxy", "busy_proxy"]

_REJECTED = {
    "index": {
        "status": 429,
        "error": {"type": "rejected_execution_exception", "reason": "the queue is full"},
    }
}


@dataclass
class BusyProxy:
    """The next ``busy`` bulks lose every second document, the first of them all."""

    url: str
    busy: int
    documents: int = 0
    rejected: int = 0


@asynccontextmanager
async def busy_proxy(server: str, *, busy: int) -> AsyncIterator[BusyProxy]:
    """Serve on a free port until the block is left."""
    proxy = BusyProxy("", busy)

    async with aiohttp.ClientSession() as session:

        async def pass_on(request: web.Request) -> web.Response:
            body = await request.read()
            lines = body.split(b"\n")
            pairs = [b"\n".join(lines[i : i + 2]) for i in range(0, len(lines) - 1, 2)]
            is_bulk = request.path.endswith("/_bulk")
            kept = pairs
            if is_bulk:
                proxy.documents += len(pairs)
                if proxy.busy:
                    proxy.busy -= 1
                    kept = pairs[1::2]
                    proxy.rejected += len(pairs) - len(kept)
                body = b"".join(pair + b"\n" for pair in kept)
            items: list[object] = []
            if kept or not is_bulk:
                async with session.request(
                    request.method,
                    f"{server}{request.rel_url}",
                    data=body or None,
                    headers={"Content-Type": request.content_type},
                ) as answer:
                    reply = await answer.json()
                    if len(kept) == len(pairs) or not is_bulk:
                        return web.json_response(reply, status=answer.status)
                    items = reply.get("items", [{"index": {"status": 201}}] * len(kept))
            mixed = [_REJECTED if i % 2 == 0 else items[i // 2] for i in range(len(pairs))]
            return web.Response(
                text=json.dumps({"errors": True, "items": mixed}), content_type="application/json"
            )

        application = web.Application(client_max_size=100 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(application)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            await runner.cleanup()
