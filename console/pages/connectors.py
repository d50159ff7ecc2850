"""Connectors of an instance: how far each is, what failed, and what can be done about it.

Everything is read from rows that connectors keep in the instance, when the page is loaded. So the
page does not renew itself: a person reloads it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from rowtide.client.changes.start import Begin
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.connector_log import ConnectorLog
from rowtide.connectors.runtime.declaration import variables
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.removal import begin_again
from rowtide.connectors.runtime.standing import ConnectorStatus, standings
from rowtide.console.pages.parked import read_parking, request_parking
from rowtide.console.web.audit import audit
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import redirect, render
from rowtide.console.web.routes import CALLS, SETTINGS, WebRoute
from rowtide.console.web.sessions import session_of

__all__ = ["CONNECTOR_ROUTES"]

LOG_LINES_MAX = 100
LOG_S = 24 * 3600
MINUTES_MAX = 60 * 24 * 366
PLACES: tuple[Begin, ...] = ("rows", "oldest", "latest")


async def show_connectors(request: web.Request) -> web.Response:
    """Return all connectors of an instance."""
    endpoint = _endpoint(request)
    found = await standings(endpoint)
    return render(
        request,
        "connectors.html",
        **_frame(request),
        connectors=[_document(standing) for standing in found.values()],
    )


async def show_connector(request: web.Request) -> web.Response:
    """Return one connector with its tables, its parked rows and its log."""
    endpoint, name = _endpoint(request), request.match_info["name"]
    declared = await _find_connector(endpoint, name)
    standing = (await standings(endpoint, (name,)))[name]
    now_us = time.time_ns() // 1000
    lines = await ConnectorLog(endpoint).read(name, since_us=now_us - LOG_S * 1_000_000)
    hidden = request.app[SETTINGS].hidden_columns
    parked, omitted = await read_parking(endpoint, declared, hidden)
    return render(
        request,
        "connector.html",
        **_frame(request),
        connector=_document(standing),
        is_source=declared.declaration is not None and not declared.declaration.sink,
        parked=parked,
        parked_omitted=omitted,
        log=[line._asdict() for line in lines[-LOG_LINES_MAX:]],
    )


def _document(standing: ConnectorStatus) -> dict[str, Any]:
    """Return a connector as the page shows it, with the rest of its snapshot."""
    found = standing.document()
    for table in found["tables"]:
        table["left_s"] = _copy_seconds(table, standing.rate)
    found["snapshot_rows"] = sum(report.snapshot_rows for report in standing.reports)
    return found


def _copy_seconds(table: dict[str, Any], rate: float) -> float | None:
    """Return how long a table's copy may take at the present rate; None if it is unknown."""
    estimate: int | None = table["rows_estimate"]
    if table["state"] != "copying" or estimate is None or rate <= 0:
        return None
    return max(0.0, (estimate - int(table["rows_copied"])) / rate)


async def change_connector(request: web.Request) -> web.Response:
    """Pause, resume or rewind a connector, or have parked rows retried or skipped."""
    endpoint, name = _endpoint(request), request.match_info["name"]
    action = request.match_info["action"]
    form = await request.post()
    declared = await _find_connector(endpoint, name)
    if action in ("pause", "resume"):
        await Declarations(endpoint).pause(name, paused=action == "pause")
    elif action == "rewind":
        await _rewind(request, endpoint, declared, form)
    else:
        ids = [str(one) for one in form.getall("id", [])]
        is_all = form.get("all") == "yes"
        audit(request, parked="all" if is_all else ",".join(ids))
        count = await request_parking(endpoint, name, ids, action, is_all=is_all)
        return _back(request, name, f"connectors.{action}_done", count=count)
    return _back(request, name, f"connectors.{action}_done", name=name)


async def _rewind(
    request: web.Request, endpoint: Endpoint, declared: DeclaredConnector, form: Any
) -> None:
    """Restart a connector from a place. A source begins with its rows again, and nowhere else."""
    declaration = declared.declaration
    if declaration is None:
        raise RequestRefused(400, "connectors.unreadable", reason=declared.failure)
    to = _place(str(form.get("to", "")), str(form.get("minutes", "")))
    if not declaration.sink and to != "rows":
        raise RequestRefused(400, "connectors.rewind_source", name=declared.name)
    audit(request, to=to)
    # A checkpoint is changed without a connection to the source, so no password is needed.
    names = variables(declaration.source) if declaration.source else ()
    place = ProcessContext(endpoint, {name: f"${{{name}}}" for name in names}, "")
    try:
        await begin_again(place, declaration, to)
    except SettingsRefused as error:
        raise RequestRefused(400, "connectors.unreadable", reason=error) from error


def _place(to: str, minutes: str) -> Begin:
    """Return where to begin again. Raises ``RequestRefused``."""
    for place in PLACES:
        if to == place:
            return place
    if to == "minutes" and minutes.isdecimal() and int(minutes) <= MINUTES_MAX:
        return time.time_ns() // 1000 - int(minutes) * 60_000_000
    raise RequestRefused(400, "connectors.rewind_place", limit=MINUTES_MAX)


async def _find_connector(endpoint: Endpoint, name: str) -> DeclaredConnector:
    found = (await Declarations(endpoint).all()).get(name)
    if found is None:
        raise RequestRefused(404, "connectors.unknown", name=name)
    return found


def _endpoint(request: web.Request) -> Endpoint:
    session = session_of(request)
    return request.app[CALLS].endpoint_of(session.credentials, _instance(request))


def _instance(request: web.Request) -> str:
    return request.query.get("instance") or session_of(request).instance


def _frame(request: web.Request) -> dict[str, Any]:
    session = session_of(request)
    instances: Sequence[str] = session.instances
    return {
        "instance": _instance(request),
        "instances": list(instances),
        "can_change": not session.is_read_only,
    }


def _back(request: web.Request, connector: str, notice: str, /, **values: object) -> web.Response:
    query = urlencode({"instance": _instance(request)})
    return redirect(request, f"/connectors/{quote(connector, safe='')}?{query}", notice, **values)


CONNECTOR_ROUTES = (
    WebRoute("GET", "/connectors", show_connectors),
    WebRoute("GET", "/connectors/{name}", show_connector),
    WebRoute(
        "POST",
        "/connectors/{name}/{action:pause|resume|rewind|retry|skip}",
        change_connector,
        is_change=True,
    ),
)
