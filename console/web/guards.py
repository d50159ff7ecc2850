"""What every request passes before its handler: host, session, origin, token, rate.

The order matters. The host comes first, so that a re-bound name learns nothing. A change is checked
by its Origin before its body is read.
"""

from __future__ import annotations

import hmac
from urllib.parse import quote

from aiohttp import web

from rowtide.console.web.audit import log_change
from rowtide.console.web.failures import answer_failure
from rowtide.console.web.headers import has_begun
from rowtide.console.web.origins import OriginRules
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.routes import CALLS, Handler, WebRoute, route_of, wants_json
from rowtide.console.web.sessions import (
    CHANGES_PER_S,
    SESSIONS,
    WebSession,
    attach_session,
    find_session,
)
from rowtide.core.values.errors import StoreError

__all__ = ["BODY_BYTES_MAX", "COOKIE", "ORIGINS", "guard"]

BODY_BYTES_MAX = 1024 * 1024
TOKEN_HEADER = "X-Csrf-Token"
ORIGINS = web.AppKey("ORIGINS", OriginRules)
COOKIE = web.AppKey("COOKIE", str)


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Check a request, have it answered, and turn what failed into words and a status."""
    route = route_of(request)
    try:
        response = await _answer(request, route, handler)
    except Exception as error:  # The outermost place of a request: it is logged.
        if has_begun(request):
            if isinstance(error, ConnectionError):
                return _leave(request)
            raise  # No other answer can be sent; aiohttp closes the connection.
        if isinstance(error, StoreError) and error.code == "OTSAuthFailed":
            await _end_session_without_key(request)
        response = answer_failure(request, error)
    if route is not None and route.is_change:
        log_change(request, response.status)
    return response


async def _answer(
    request: web.Request, route: WebRoute | None, handler: Handler
) -> web.StreamResponse:
    if not request.app[ORIGINS].allows_host(request.headers.get("Host", "")):
        raise RequestRefused(421, "failure.host")
    _find_session(request)
    if route is None:
        return await handler(request)
    session = find_session(request)
    if route.is_change:
        _require_origin(request)
    if route.needs_session and session is None:
        if route.is_change or wants_json(request):
            raise RequestRefused(401, "failure.session")
        return web.Response(
            status=303, headers={"Location": f"/login?to={quote(request.path_qs, safe='')}"}
        )
    if route.is_change and session is not None:
        await _require_token(request, session)
        _take_change(request, session)
        if session.is_read_only and route.needs_session:
            raise RequestRefused(403, "failure.read_only")
    return await handler(request)


def _leave(request: web.Request) -> web.Response:
    """Close the connection of a viewer who has gone. The answer is sent to no one."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _find_session(request: web.Request) -> None:
    session_id = request.cookies.get(request.app[COOKIE], "")
    session = None
    if session_id:
        session = request.app[SESSIONS].find(session_id, touch=_is_use(request))
    if session is not None:
        attach_session(request, session)


async def _end_session_without_key(request: web.Request) -> None:
    """End a session whose key the worker does not know any more.

    An address with another instance is refused with the same code, so the worker is asked again.
    """
    session = find_session(request)
    if session is None:
        return
    try:
        await request.app[CALLS].call(session.credentials, session.instance, "RowtideDescribeKey")
    except StoreError as error:
        if error.code == "OTSAuthFailed":
            request.app[SESSIONS].end(session)


def _is_use(request: web.Request) -> bool:
    """True if a person does something. Pages that renew themselves must not keep a session alive.

    A browser says whether it navigates or a script asks.
    """
    return (
        request.method == "POST" or request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
    )


def _require_origin(request: web.Request) -> None:
    """Raise 403 unless the page that makes this change is one of ours."""
    origin = request.headers.get("Origin", "")
    if not request.app[ORIGINS].allows_origin(origin, request.headers.get("Host", "")):
        raise RequestRefused(403, "failure.origin")


async def _require_token(request: web.Request, session: WebSession) -> None:
    """Raise 403 unless a change has the session's CSRF token, as a header or a form's field."""
    token = request.headers.get(TOKEN_HEADER, "")
    if not token:
        field = (await request.post()).get("csrf", "")
        token = field if isinstance(field, str) else ""
    if not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise RequestRefused(403, "failure.token")


def _take_change(request: web.Request, session: WebSession) -> None:
    """Raise 429 where a session changes too much too fast."""
    if not session.changes.take(request.app[SESSIONS].now_s()):
        raise RequestRefused(429, "failure.changes", retry_after_s=1, limit=CHANGES_PER_S)
