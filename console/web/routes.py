"""What a module of pages or of the feed offers, and what its handlers find in the application.

A module exports ``ROUTES``. ``console/process/app.py`` joins them all.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from aiohttp import web

from rowtide.console.web.console_settings import ConsoleSettings
from rowtide.console.workers.calls import WorkerCalls

__all__ = [
    "CALLS",
    "SETTINGS",
    "STOPPING",
    "TASKS",
    "Handler",
    "WebRoute",
    "add_routes",
    "json_path",
    "route_of",
    "wants_json",
]

SETTINGS = web.AppKey("SETTINGS", ConsoleSettings)
CALLS = web.AppKey("CALLS", WorkerCalls)
TASKS = web.AppKey("TASKS", asyncio.TaskGroup)
"""Where parts start their tasks; the group ends them when the console has stopped."""
STOPPING = web.AppKey("STOPPING", asyncio.Event)
"""Set when the console has to stop: feeds end then, with an event that says so."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class WebRoute:
    """One address. ``is_change``: it changes something, so it needs Origin and CSRF token.

    ``has_json``: the same page, with ``.json`` at the end of its path, answers its data. A route
    with ``needs_session`` sends a browser without a session to the log-in.
    """

    method: str
    path: str
    handler: Handler
    needs_session: bool = True
    is_change: bool = False
    has_json: bool = True


_FEED = re.compile(r"/stream(/.*)?|/dashboards/[^/]+/(events|metrics)")

_ROUTES = web.AppKey("_ROUTES", dict[tuple[str, str], WebRoute])


def json_path(path: str) -> str:
    """Return the address of a page's data; that of ``/`` is ``/health.json``."""
    return "/health.json" if path == "/" else f"{path}.json"


def add_routes(app: web.Application, routes: Iterable[WebRoute]) -> None:
    """Serve the routes. Addresses of data come first, since ``{table}`` would match them too."""
    routes = tuple(routes)
    known: dict[tuple[str, str], WebRoute] = {}
    app[_ROUTES] = known
    pages = [route for route in routes if route.method == "GET" and route.has_json]
    for path, route in [*((json_path(page.path), page) for page in pages), *_by_path(routes)]:
        if route.method == "GET":
            added = app.router.add_get(path, route.handler)
        else:
            added = app.router.add_route(route.method, path, route.handler)
        assert added.resource is not None, path
        known[route.method, added.resource.canonical] = route


def _by_path(routes: Iterable[WebRoute]) -> list[tuple[str, WebRoute]]:
    return [(route.path, route) for route in routes]


def route_of(request: web.Request) -> WebRoute | None:
    """Return the route that a request has reached; None if there is none at its address."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    method = "GET" if request.method == "HEAD" else request.method
    return request.app[_ROUTES].get((method, resource.canonical))


def wants_json(request: web.Request) -> bool:
    """True if a request asks for data: by its path, or by an Accept header without HTML.

    A feed is never a page, so programs get the reason of a refusal as data.
    """
    if request.path.endswith(".json") or _FEED.fullmatch(request.path):
        return True
    accepted = request.headers.get("Accept", "")
    return "application/json" in accepted and "text/html" not in accepted
