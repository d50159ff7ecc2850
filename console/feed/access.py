"""Who may follow a table: a person with a session, or a program with a share token.

The worker decides. It is asked with the person's own key, or for the token's digest. The right is
confirmed again every few seconds while the feed runs. A token comes in the header ``Authorization:
Bearer TOKEN`` or in the cookie ``rowtide_share``, never in an address, because those are logged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

from rowtide.console.web.guards import ORIGINS
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.routes import CALLS
from rowtide.console.web.sessions import SESSIONS, find_session
from rowtide.console.workers.tokens import ShareTokens
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected

__all__ = [
    "SESSION_FEEDS_MAX",
    "TOKENS",
    "TOKEN_FEEDS_MAX",
    "FeedAccess",
    "authorize",
    "bearer_token",
    "require_origin",
]

SESSION_FEEDS_MAX = 20
TOKEN_FEEDS_MAX = 2000
TOKENS = web.AppKey("TOKENS", ShareTokens)
TOKEN_COOKIE = "rowtide_share"
BEARER = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedAccess:
    """The right to follow a table.

    ``owner`` names the session or the token; it may have ``feeds_max`` feeds. ``key`` is the one
    partition key, as text, that a token is for. ``confirm`` raises ``Rejected`` once the right has
    ended, and another ``StoreError`` if no worker answers.
    """

    instance: str
    table: str
    owner: str
    feeds_max: int
    confirm: Callable[[], Awaitable[None]]
    key: str | None = None


async def authorize(request: web.Request, instance: str, table: str) -> FeedAccess:
    """Return the right of a request. Raises ``RequestRefused`` and ``StoreError``."""
    require_origin(request)
    token = find_token(request)
    if token:
        return await _authorize_token(request.app[TOKENS], token, instance, table)
    return await _authorize_session(request, instance, table)


def require_origin(request: web.Request) -> None:
    """Raise 403 if a page of another site opens a feed: a WebSocket is not kept from it."""
    origin = request.headers.get("Origin", "")
    if origin and not request.app[ORIGINS].allows_origin(origin, request.headers.get("Host", "")):
        raise RequestRefused(403, "failure.origin")


def bearer_token(request: web.Request) -> str:
    """Return the token of the header ``Authorization``; empty if there is none."""
    header = request.headers.get("Authorization", "")
    return header[len(BEARER) :].strip() if header[: len(BEARER)].lower() == BEARER else ""


def find_token(request: web.Request) -> str:
    """Return the share token of a request; empty if it has none."""
    token = bearer_token(request)
    if token:
        return token
    return "" if find_session(request) is not None else request.cookies.get(TOKEN_COOKIE, "")


async def _authorize_token(
    tokens: ShareTokens, token: str, instance: str, table: str
) -> FeedAccess:
    shared = await tokens.check(token)  # Each time: a revoked token opens nothing.
    if (shared.instance, shared.table) != (instance.lower(), table):
        raise Rejected(
            "OTSNoPermissionAccess",
            f"The share token does not allow table '{table}' of instance '{instance}'.",
        )
    return FeedAccess(
        instance=shared.instance,
        table=table,
        owner=f"token {shared.token_id}",
        feeds_max=TOKEN_FEEDS_MAX,
        confirm=partial(tokens.confirm, shared),
        key=shared.key,
    )


async def _authorize_session(request: web.Request, instance: str, table: str) -> FeedAccess:
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
