"""Who may see a dashboard: a person whose key may read its table, or who has a link to it.

The worker decides. A link has a share token for this dashboard alone. A program sends the token in
the header ``Authorization: Bearer TOKEN``. A browser has it in a cookie, which the page of the link
sets. A token is never in an address, because addresses are logged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from aiohttp import web

from rowtide.console.feed.access import SESSION_FEEDS_MAX, TOKEN_FEEDS_MAX, TOKENS, bearer_token
from rowtide.console.web.guards import COOKIE
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.routes import CALLS, wants_json
from rowtide.console.web.sessions import SESSIONS, WebSession, find_session
from rowtide.console.workers.tokens import ShareTokens
from rowtide.core.cluster.share_token import DASHBOARD
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards

__all__ = ["DashboardAccess", "authorize_dashboard", "cookie_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardAccess:
    """The right to see a dashboard.

    ``table`` is the only one over which a shared dashboard may be; None for a person with a key.
    ``owner`` names the session or the token; it may follow ``places_max`` dashboards at once.
    ``confirm`` raises ``Rejected`` once the right has ended, and another ``StoreError`` if no
    worker answers.
    """

    instance: str
    name: str
    owner: str
    places_max: int
    confirm: Callable[[], Awaitable[None]]
    table: str | None = None


async def authorize_dashboard(request: web.Request) -> DashboardAccess:
    """Return the right to the dashboard that an address names.

    Raises ``RequestRefused`` and ``StoreError``. A browser without any right is sent to the log-in.
    """
    name, session = request.match_info["name"], find_session(request)
    token = bearer_token(request)
    if not token and session is not None:
        return await _authorize_session(request, session, name)
    token = token or request.cookies.get(cookie_name(request, _instance(request), name), "")
    if token:
        return await _authorize_token(request.app[TOKENS], token, _instance(request), name)
    if wants_json(request):
        raise RequestRefused(401, "failure.session")
    raise web.HTTPSeeOther(f"/login?to={quote(request.path_qs, safe='')}")


def cookie_name(request: web.Request, instance: str, name: str) -> str:
    """Return the name of the cookie with the token of a dashboard: a browser may have several."""
    digest = hashlib.sha256(f"{instance.lower()}/{name}".encode()).hexdigest()
    return f"{request.app[COOKIE]}_{digest[:16]}"


def _instance(request: web.Request) -> str:
    return request.query.get("instance", "")


async def _authorize_token(
    tokens: ShareTokens, token: str, instance: str, name: str
) -> DashboardAccess:
    shared = await tokens.check(token, DASHBOARD)  # Each time: a revoked token opens nothing.
    if shared.dashboard != name or (instance and instance.lower() != shared.instance):
        raise Rejected(
            "OTSNoPermissionAccess", f"The share token does not allow dashboard '{name}'."
        )
    return DashboardAccess(
        instance=shared.instance,
        name=name,
        table=shared.table,
        owner=f"token {shared.token_id}",
        places_max=TOKEN_FEEDS_MAX,
        confirm=partial(tokens.confirm, shared),
    )


async def _authorize_session(
    request: web.Request, session: WebSession, name: str
) -> DashboardAccess:
    calls, sessions = request.app[CALLS], request.app[SESSIONS]
    instance = _instance(request) or session.instance
    stored = await StoredDashboards(calls.endpoint_of(session.credentials, instance)).get(name)
    if stored is None:
        raise RequestRefused(404, "dashboards.unknown", name=name)
    builds = [build for build in (stored.build, stored.former) if build is not None]
    tables = {build.dashboard.table.name for build in builds}

    async def confirm() -> None:
        if not sessions.has(session):
            raise Rejected("OTSAuthFailed", "The session has ended.")
        for table in tables:
            wanted = pb.DescribeTableRequest(table_name=table)
            try:
                await calls.call(session.credentials, instance, "DescribeTable", wanted)
            except Rejected as error:
                if error.code != "OTSObjectNotExist":  # Numbers outlive their table.
                    raise

    await confirm()
    return DashboardAccess(
        instance=instance,
        name=name,
        owner=f"session {session.id}",
        places_max=SESSION_FEEDS_MAX,
        confirm=confirm,
    )
