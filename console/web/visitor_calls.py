"""Calls that a page makes for its visitor, signed with the visitor's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rowtide.console.web.routes import CALLS
from rowtide.console.web.sessions import session_of

__all__ = ["call_for_visitor"]


async def call_for_visitor(
    request: web.Request, operation: str, fields: Mapping[str, object]
) -> dict[str, Any]:
    """Return a worker's answer to one of rowtide's own operations. Raises ``StoreError``.

    It is asked in the instance of the page's address, or in the visitor's first one.
    """
    session = session_of(request)
    instance = request.match_info.get("instance", session.instance)
    answer: dict[str, Any] = await request.app[CALLS].call(
        session.credentials, instance, operation, fields
    )
    return answer
