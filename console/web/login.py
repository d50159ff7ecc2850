"""Log-in, log-out and preferences.

A person logs in with an access key in a form, or by a one-time link. The worker judges the key.
Its secret is in the body of one request and then in the session: in no answer, address or log line.
"""

from __future__ import annotations

import json

from aiohttp import web

from rowtide.console.languages.texts import LANGUAGES
from rowtide.console.web.addresses import address_of
from rowtide.console.web.attempts import ATTEMPTS
from rowtide.console.web.audit import log_event
from rowtide.console.web.guards import COOKIE, ORIGINS
from rowtide.console.web.links import LINK_S_MAX, LINKS
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import (
    LANGUAGE_COOKIE,
    THEME_COOKIE,
    THEMES,
    render,
    render_status,
)
from rowtide.console.web.rights import KeyRights, learn_rights
from rowtide.console.web.routes import CALLS, SETTINGS, WebRoute
from rowtide.console.web.sessions import SESSION_S_MAX, SESSIONS, find_session
from rowtide.console.workers.calls import KeyPair
from rowtide.core.values.errors import Rejected

__all__ = ["LOGIN_ROUTES"]

FIELD_CHARACTERS_MAX = 256
PREFERENCE_S_MAX = 365 * 24 * 3600
REFUSED_KEYS = {"OTSAuthFailed", "OTSNoPermissionAccess", "OTSParameterInvalid"}


async def show_login(request: web.Request) -> web.Response:
    """Return the form for an access key.

    A browser that still has the cookie of a session had one, which has ended: the page says why.
    """
    has_ended = bool(request.cookies.get(request.app[COOKIE])) and find_session(request) is None
    to, problem = request.query.get("to", "/"), "login.ended" if has_ended else ""
    return _login_page(request, 200, to=to, problem=problem)


async def log_in(request: web.Request) -> web.Response:
    """Begin a session with the access key of the form."""
    form = await request.post()
    key_id, secret, instance = (
        _field(form.get(name)) for name in ("access_key_id", "access_key_secret", "instance")
    )
    instance = instance or request.app[SETTINGS].instance
    to = local_address(_field(form.get("to"), FIELD_CHARACTERS_MAX * 8))
    request.app[ATTEMPTS].require(f"address {address_of(request)}", f"key {key_id}")
    if not key_id or not secret:
        return _login_page(request, 400, to=to, key_id=key_id, problem="login.empty")
    try:
        rights = await learn_rights(request.app[CALLS], KeyPair(key_id, secret), instance)
    except Rejected as error:
        if error.code not in REFUSED_KEYS:
            raise
        log_event(request, "log-in refused", key=key_id, code=error.code)
        return _login_page(request, 403, to=to, key_id=key_id, problem="login.refused")
    return _begin(request, rights, to)


def _login_page(
    request: web.Request, status: int, *, to: str, key_id: str = "", problem: str = ""
) -> web.Response:
    return render_status(
        request,
        status,
        "login.html",
        to=local_address(to),
        key_id=key_id,
        instance=request.app[SETTINGS].instance,
        problem=problem,
    )


async def show_link(request: web.Request) -> web.Response:
    """Return the page that a one-time link leads to. Its module sends the code of the fragment."""
    return render(request, "link.html", to=local_address(request.query.get("to", "/")))


async def use_link(request: web.Request) -> web.Response:
    """Begin a session with the code of a one-time link."""
    form = await request.post()
    request.app[ATTEMPTS].require(f"address {address_of(request)}")
    rights = request.app[LINKS].take(_field(form.get("code")))
    if rights is None:
        raise RequestRefused(403, "failure.link")
    return _begin(request, rights, local_address(_field(form.get("to"), 2048)))


async def make_link(request: web.Request) -> web.Response:
    """Return the code of a new one-time link to a program that has a key: ``rowtide console open``.

    It is no form: a page of another site can send JSON nowhere without leave.
    """
    if request.content_type != "application/json" or "Origin" in request.headers:
        raise RequestRefused(403, "failure.origin")
    try:
        wanted = json.loads(await request.text())
        key_id, secret, instance = (
            str(wanted[name]) for name in ("access_key_id", "access_key_secret", "instance")
        )
    except (ValueError, KeyError, TypeError) as error:
        raise RequestRefused(400, "failure.link_request") from error
    request.app[ATTEMPTS].require(f"address {address_of(request)}", f"key {key_id}")
    rights = await learn_rights(request.app[CALLS], KeyPair(key_id, secret), instance)
    log_event(request, "one-time link made", key=key_id)
    code = request.app[LINKS].make(rights)
    return web.json_response({"code": code, "path": "/link", "seconds": LINK_S_MAX})


async def log_out(request: web.Request) -> web.Response:
    """End the session."""
    session = find_session(request)
    if session is not None:
        request.app[SESSIONS].end(session)
    response = web.Response(status=303, headers={"Location": "/login"})
    response.del_cookie(request.app[COOKIE], path="/", httponly=True, samesite="Strict")
    return response


async def set_preferences(request: web.Request) -> web.Response:
    """Remember language and colours, in a cookie and in the session."""
    form = await request.post()
    language, theme = _field(form.get("language")), _field(form.get("theme"))
    response = web.Response(
        status=303, headers={"Location": local_address(_field(form.get("back"), 2048))}
    )
    session = find_session(request)
    if language in LANGUAGES:
        response.set_cookie(
            LANGUAGE_COOKIE, language, max_age=PREFERENCE_S_MAX, samesite="Strict", httponly=True
        )
        if session is not None:
            session.language = language
    if theme in (*THEMES, "auto"):
        response.set_cookie(
            THEME_COOKIE, theme, max_age=PREFERENCE_S_MAX, samesite="Strict", httponly=True
        )
        if session is not None:
            session.theme = theme
    return response


def _begin(request: web.Request, rights: KeyRights, to: str) -> web.Response:
    """Answer with the cookie of a new session; the former one of this browser ends."""
    former = find_session(request)
    sessions = request.app[SESSIONS]
    session = sessions.begin(
        rights.key, rights.instances, is_admin=rights.is_admin, is_read_only=rights.is_read_only
    )
    if former is not None:
        session.language, session.theme = former.language, former.theme
        sessions.end(former)
    log_event(request, "log-in", key=session.access_key_id)
    response = web.Response(status=303, headers={"Location": to})
    response.set_cookie(
        request.app[COOKIE],
        session.id,
        max_age=int(SESSION_S_MAX),
        path="/",
        httponly=True,
        samesite="Strict",
        secure=request.app[ORIGINS].is_secure(request.headers.get("Origin", "")),
    )
    return response


def local_address(text: str) -> str:
    """Return an address of this console, ``/`` if the text may lead elsewhere."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_local else "/"


def _field(value: object, characters_max: int = FIELD_CHARACTERS_MAX) -> str:
    """Return a form's field without spaces around it; empty if it is a file or too long."""
    text = value.strip() if isinstance(value, str) else ""
    return text if len(text) <= characters_max else ""


LOGIN_ROUTES = (
    WebRoute("GET", "/login", show_login, needs_session=False, has_json=False),
    WebRoute("POST", "/login", log_in, needs_session=False, is_change=True),
    WebRoute("POST", "/logout", log_out, needs_session=False, is_change=True),
    WebRoute("GET", "/link", show_link, needs_session=False, has_json=False),
    WebRoute("POST", "/link", use_link, needs_session=False, is_change=True),
    WebRoute("POST", "/links", make_link, needs_session=False),
    WebRoute("POST", "/preferences", set_preferences, needs_session=False, is_change=True),
)
