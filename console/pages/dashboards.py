"""Dashboards of an instance: their numbers, with the positions of the logs at which they are exact.

All viewers of a dashboard share one reader (``console/numbers/dashboard_reader.py``). The page
follows ``/events``; without JavaScript it shows the numbers as they were when it was loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from rowtide.client.changes.api import ApiSource
from rowtide.console.languages.texts import texts_of
from rowtide.console.numbers.dashboard_access import DashboardAccess, authorize_dashboard
from rowtide.console.numbers.dashboard_reader import DashboardReader
from rowtide.console.numbers.dashboard_readers import READERS, DashboardReaders
from rowtide.console.numbers.number_events import NumberEvents
from rowtide.console.numbers.number_metrics import CONTENT_TYPE, metrics_text
from rowtide.console.numbers.shown_numbers import layout_of
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import language_of, render
from rowtide.console.web.routes import CALLS, SETTINGS, STOPPING, TASKS, WebRoute
from rowtide.console.web.sessions import find_session, session_of
from rowtide.core.values.errors import Rejected
from rowtide.dashboards.runtime.fresh import FreshWish
from rowtide.dashboards.runtime.standing import read_standings

__all__ = ["DASHBOARD_ROUTES", "start_readers"]

FRESH_S_MAX = 5.0
ROWS_SHOWN_MAX = 100
"""Rows of a panel in its table. Data and events have all."""


async def start_readers(app: web.Application) -> None:
    """Make the readers. Each starts with its first viewer."""
    settings, calls = app[SETTINGS], app[CALLS]
    app[READERS] = DashboardReaders(
        app[TASKS],
        lambda instance: calls.endpoint_of(settings.own_key, instance),
        settings.hidden_columns,
    )


async def show_dashboards(request: web.Request) -> web.Response:
    """Return all dashboards of an instance."""
    session = session_of(request)
    instance = request.query.get("instance") or session.instance
    found = await read_standings(request.app[CALLS].endpoint_of(session.credentials, instance))
    return render(
        request,
        "dashboards.html",
        instance=instance,
        dashboards=[standing.document() for standing in found.values()],
    )


async def show_dashboard(request: web.Request) -> web.Response:
    """Return the numbers of one dashboard. ``fresh=1`` waits until they include what came before.

    ``wall=1`` is the form for a large screen.
    """
    is_fresh = request.query.get("fresh") == "1"
    async with _viewing(request, is_fresh=is_fresh) as (access, document):
        data: dict[str, Any] = {
            "instance": access.instance,
            "dashboard": document,
            "lag": document["lag"],
            "troubles": document["troubles"],
        }
    if request.path.endswith(".json"):
        return render(request, "dashboard.html", **data)
    is_wall = request.query.get("wall") == "1"
    language = language_of(request)
    path = f"/dashboards/{quote(access.name, safe='')}/events"
    settings = {
        "path": f"{path}?{urlencode({'instance': access.instance})}",
        "layout": layout_of(document),
        "rows_max": ROWS_SHOWN_MAX,
        "is_wall": is_wall,
        "texts": dict(texts_of(language, "dashboards")),
        "language": language,
        "login": f"/login?{urlencode({'to': request.path_qs})}",
    }
    session = find_session(request)
    return render(
        request,
        "dashboard.html",
        **data,
        settings=settings,
        rows_max=ROWS_SHOWN_MAX,
        is_wall=is_wall,
        can_share=session is not None and session.can_administer,
    )


@asynccontextmanager
async def _viewing(
    request: web.Request, *, is_fresh: bool = False
) -> AsyncIterator[tuple[DashboardAccess, dict[str, Any]]]:
    """Yield the present document of the dashboard of an address, to a visitor who may see it."""
    began_s = asyncio.get_running_loop().time()
    access = await authorize_dashboard(request)
    with request.app[READERS].view(access.instance, access.name) as reader:
        if is_fresh:
            await _await_fresh(reader, began_s + FRESH_S_MAX)
        document = (await reader.first()).document
        _require_table(access, document)
        yield access, document


def _require_table(access: DashboardAccess, document: dict[str, Any]) -> None:
    """Raise 403 if a shared dashboard is over another table than the one that was shared."""
    if access.table is not None and document["table"] not in (None, access.table):
        raise Rejected(
            "OTSNoPermissionAccess",
            f"Dashboard '{access.name}' is over another table than when it was shared.",
        )


async def _await_fresh(reader: DashboardReader, until_s: float) -> None:
    """Return once numbers include all that was acknowledged before the call.

    Raises 504 if they do not in time.
    """
    try:
        async with asyncio.timeout_at(until_s):
            shown = await reader.first()
            while shown.numbers is None:
                await reader.wait(shown.version, FRESH_S_MAX)
            wish = FreshWish(ApiSource(reader.endpoint, str(shown.document["table"])))
            await wish.begin()
            while True:
                version, numbers = shown.version, shown.numbers
                if numbers is not None and await wish.is_met(numbers.positions):
                    return
                await reader.wait(version, FRESH_S_MAX)
    except TimeoutError as error:
        raise RequestRefused(504, "dashboards.not_fresh", seconds=int(FRESH_S_MAX)) from error


async def follow_dashboard(request: web.Request) -> web.StreamResponse:
    """Answer with the numbers as Server-Sent Events, now and whenever they change."""
    access = await authorize_dashboard(request)
    with request.app[READERS].follow(
        access.instance, access.name, owner=access.owner, places_max=access.places_max
    ) as reader:
        _require_table(access, (await reader.first()).document)
        events = NumberEvents(reader, access, request.app[STOPPING], language=language_of(request))
        after = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        events.version = reader.shown.version_of(after)
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        response.force_close()
        await response.prepare(request)
        if request.method != "HEAD":
            await events.run(response)
    return response


async def show_metrics(request: web.Request) -> web.Response:
    """Answer with the numbers in the Prometheus text format."""
    async with _viewing(request) as (_, document):
        text = metrics_text(document)
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


DASHBOARD_ROUTES = (
    WebRoute("GET", "/dashboards", show_dashboards),
    WebRoute("GET", "/dashboards/{name}", show_dashboard, needs_session=False),
    WebRoute(
        "GET", "/dashboards/{name}/events", follow_dashboard, needs_session=False, has_json=False
    ),
    WebRoute(
        "GET", "/dashboards/{name}/metrics", show_metrics, needs_session=False, has_json=False
    ),
)
