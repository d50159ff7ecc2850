"""A schema registry in this process: the part of Confluent's that a sink uses, over HTTP.

``test_judges.py`` uses the real one and takes minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

__all__ = ["Registry", "registry"]


class Registry:
    """Schemas by id, and their ids by subject, in the order of their versions."""

    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}

    async def register(self, request: web.Request) -> web.Response:
        """Give a schema the id that it has, or a new one."""
        schema = (await request.json())["schema"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        known = self.subjects.setdefault(request.match_info["subject"], [])
        schema_id = self.schemas.index(schema) + 1
        if schema_id not in known:
            known.append(schema_id)
        return web.json_response({"id": schema_id})

    async def latest(self, request: web.Request) -> web.Response:
        """Return the last schema of a subject."""
        known = self.subjects.get(request.match_info["subject"])
        if not known:
            return web.json_response({"error_code": 40401, "message": "no subject"}, status=404)
        return web.json_response({"id": known[-1], "schema": self.schemas[known[-1] - 1]})

    async def schema(self, request: web.Request) -> web.Response:
        """Return the schema of an id."""
        return web.json_response({"schema": self.schemas[int(request.match_info["id"]) - 1]})


@asynccontextmanager
async def registry() -> AsyncIterator[Registry]:
    """Give a registry on a free port of loopback."""
    kept = Registry()
    app = web.Application()
    app.router.add_post("/subjects/{subject}/versions", kept.register)
    app.router.add_get("/subjects/{subject}/versions/latest", kept.latest)
    app.router.add_get("/schemas/ids/{id}", kept.schema)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        kept.url = f"http://{host}:{port}"
        yield kept
    finally:
        await runner.cleanup()
