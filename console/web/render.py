"""Pages from templates. Everything is escaped; a page's data is also to be had as JSON.

A template extends ``base.html``. It finds ``t`` (the texts of the visitor's language), ``session``
(None before the log-in), ``static`` (addresses of files) and ``csrf_field``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import jinja2
from aiohttp import web
from markupsafe import Markup, escape

from rowtide.console.languages.texts import LANGUAGES, choose_language, translate
from rowtide.console.web.formats import FORMATS
from rowtide.console.web.routes import json_path, wants_json
from rowtide.console.web.sessions import WebSession, find_session, session_of
from rowtide.console.web.static_files import static_url
from rowtide.core.release import VERSION

__all__ = ["language_of", "redirect", "render", "render_status"]

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
LANGUAGE_COOKIE = "rowtide_language"
THEME_COOKIE = "rowtide_theme"
THEMES = ("light", "dark")

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


def language_of(request: web.Request) -> str:
    """Return the language of a request: chosen in the session, by cookie, or by the browser."""
    session = find_session(request)
    chosen = (session.language if session else "") or request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return choose_language(request.headers.get("Accept-Language", ""))


def theme_of(request: web.Request) -> str:
    """Return ``light`` or ``dark`` if the visitor chose one, else an empty text."""
    session = find_session(request)
    chosen = (session.theme if session else "") or request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in THEMES else ""


def render(request: web.Request, template: str, /, **data: Any) -> web.Response:
    """Return a page, or ``data`` as JSON where the request asks for it."""
    return render_status(request, 200, template, **data)


def render_status(request: web.Request, status: int, template: str, /, **data: Any) -> web.Response:
    """Return a page or its data with an HTTP status."""
    if wants_json(request):
        return web.json_response(data, status=status, dumps=_json_text)
    frame = _frame_of(request)
    assert not frame.keys() & data.keys(), frame.keys() & data.keys()
    text = _ENVIRONMENT.get_template(template).render(**FORMATS, **frame, **data)
    return web.Response(status=status, text=text, content_type="text/html", charset="utf-8")


def _frame_of(request: web.Request) -> dict[str, object]:
    """Return what every template finds besides the data of its page."""
    session, language = find_session(request), language_of(request)
    return {
        "t": partial(translate, language),
        "language": language,
        "theme": theme_of(request),
        "session": session,
        "notices": _take_notices(session),
        "static": static_url,
        "pages": _pages_of(session),
        "csrf_field": partial(_csrf_field, session),
        "mark_english": partial(_mark_english, language),
        "login_address": _login_address(request),
        "path": request.path,
        "address": request.path_qs,
        "data_address": _data_address(request),
        "version": VERSION,
    }


def redirect(
    request: web.Request, address: str, notice: str = "", /, **values: object
) -> web.Response:
    """Answer a change that was made: send a browser to ``address``, which shows the notice once.

    ``notice`` is the key of a text. A program gets JSON.
    """
    if wants_json(request):
        return web.json_response({"done": True, "see": address, **values}, dumps=_json_text)
    if notice:
        session_of(request).notices.append((notice, values))
    return web.Response(status=303, headers={"Location": address})


def _take_notices(session: WebSession | None) -> list[tuple[str, dict[str, object]]]:
    if session is None:
        return []
    notices, session.notices = session.notices, []
    return notices


def _pages_of(session: WebSession | None) -> list[tuple[str, str]]:
    """Return (name, address) of the pages that every page leads to."""
    if session is None:
        return []
    instance = session.instance
    return [
        ("health", "/"),
        ("tables", f"/i/{instance}/tables"),
        ("connectors", "/connectors"),
        ("dashboards", "/dashboards"),
        ("usage", f"/i/{instance}/usage"),
        *([("keys", "/keys"), ("tokens", "/tokens")] if session.is_admin else []),
    ]


def _csrf_field(session: WebSession | None) -> Markup:
    """Return the hidden field that every form of a change has."""
    token = session.csrf if session is not None else ""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(token)


def _mark_english(language: str, text: str, part: str) -> Markup:
    """Return a text as HTML. Its ``part``, words of the worker, is marked as English.

    So a screen reader reads a Chinese page in two languages.
    """
    if language == "en" or not part or part not in text:
        return escape(text)
    before, _, after = text.rpartition(part)
    return Markup('{}<span lang="en">{}</span>{}').format(before, part, after)


def _login_address(request: web.Request) -> str:
    """Return the address of a log-in that leads back: to this page, or to that of the form."""
    place = request.path_qs
    if request.method != "GET":
        try:
            page = urlsplit(request.headers.get("Referer", ""))
        except ValueError:
            page = urlsplit("/")
        place = urlunsplit(("", "", page.path or "/", page.query, ""))
    return f"/login?{urlencode({'to': place})}"


def _data_address(request: web.Request) -> str:
    """Return the address of the data of this page, with the same query."""
    query = request.rel_url.raw_query_string
    return json_path(request.rel_url.raw_path) + (f"?{query}" if query else "")


def _json_text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
