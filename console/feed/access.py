"""Who may follow a table.

A person's session must be allowed to read the table: the worker decides, for the person's own key.
The right is confirmed again every few seconds while the feed runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.routes import CALLS
from rowtide.console.web.sessions import SESSIONS, find_session
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected

__all__ = ["SESSION_FEEDS_MAX", "FeedAccess", "authorize"]

SESSION_FEEDS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedAccess:
    """The right to follow a table.

    ``owner`` names the session or the token; it may have ``feeds_max`` feeds. ``key`` is the one
    partition key, as text, that a token is for. ``confirm`` raises ``Rejected`` once the right has
    ended, and another ``StoreError`` if nobody knows now.
    """

    instance: str
    table: str
    owner: str
    feeds_max: int
    confirm: Callable[[], Awaitable[None]]
    key: str | None = None


async def authorize(request: web.Request, instance: str, table: str) -> FeedAccess:
    """Return the right of a request. Raises ``RequestRefused`` and ``StoreError``."""
    session = find_session(request)
    if session is None:
        raise RequestRefused(401, "failure.session")
    calls, sessions = request.app[CALLS], request.app[SESSIONS]

    async def confirm() -> None:
        if not sessions.has(session):
            raise Rejected("OTSAuthFailed", "The session has ended.")
        wanted = pb.ListStreamRequest(table_name=table)
        await calls.call(session.credentials, instance, "ListStream", wanted)

    await confirm()
    return FeedAccess(
        instance=instance,
        table=table,
        owner=f"session {session.id}",
        feeds_max=SESSION_FEEDS_MAX,
        confirm=confirm,
    )
