"""Capacity units of an instance by hour and table, also as CSV."""

from __future__ import annotations

import csv
import io
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from rowtide.console.pages.figures import ANSWERS
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import render
from rowtide.console.web.routes import CALLS, WebRoute
from rowtide.console.web.sessions import credentials_of
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["USAGE_ROUTES"]

HOUR_S = 3600
SPANS_H = (24, 7 * 24, 30 * 24)
"""Hours that the page offers; an address may have any number up to ``HOURS_MAX``."""
HOURS_MAX = 400 * 24
"""As long as workers keep the sums."""

LINES_SHOWN = 150
"""Lines in the page; the CSV has all."""

UNITS = (
    *("read", "write", "read_reserved", "write_reserved"),
    *("read_on_demand", "write_on_demand"),
)


async def show_usage(request: web.Request) -> web.Response:
    """Return the newest hours."""
    hours, table = _hours_of(request), request.query.get("table", "")
    lines, silent = await _read_lines(request, hours, table)
    path = f"/i/{quote(request.match_info['instance'])}/usage"
    asked = {"hours": str(hours)} | ({"table": table} if table else {})
    return render(
        request,
        "usage.html",
        instance=request.match_info["instance"],
        hours=hours,
        spans=SPANS_H,
        table=table,
        lines=lines[:LINES_SHOWN],
        count=len(lines),
        totals={name: sum(line[name] for line in lines) for name in ("read", "write")},
        silent=silent,
        csv_address=f"{path}.csv?{urlencode(asked)}",
    )


async def download_usage(request: web.Request) -> web.Response:
    """Return all hours as CSV: times in UTC, a line for each hour and table."""
    hours, table = _hours_of(request), request.query.get("table", "")
    lines, _ = await _read_lines(request, hours, table)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("hour", "table", *UNITS))
    for line in lines:
        at = datetime.fromtimestamp(line["hour_s"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        writer.writerow((at, line["table"] or "", *(line[name] for name in UNITS)))
    name = f"usage-{request.match_info['instance']}.csv"
    return web.Response(
        text=text.getvalue(),
        content_type="text/csv",
        charset="utf-8",
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"},
    )


def _hours_of(request: web.Request) -> int:
    text = request.query.get("hours", str(SPANS_H[0]))
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:6]) <= HOURS_MAX:
        raise RequestRefused(400, "usage.bad_hours", value=text[:20], most=HOURS_MAX)
    return int(text[:6])


async def _read_lines(
    request: web.Request, hours: int, table: str
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the lines, newest hour first, and the workers that did not answer.

    The visitor's key must be allowed to use the instance: a worker says so. The sums are those of
    the instance, so the console's own key reads them for all who may.
    """
    named = request.match_info["instance"]
    credentials = credentials_of(request)
    await request.app[CALLS].call(credentials, named, "ListTable", pb.ListTableRequest())
    begin_s = (int(time.time()) // HOUR_S - hours + 1) * HOUR_S
    fields: dict[str, object] = {"instance": named, "from": begin_s}
    if table:
        fields["table"] = table
    found = await request.app[ANSWERS].ask("RowtideConsumption", fields)
    lines = sorted(found["hours"], key=lambda line: (-line["hour_s"], line["table"] or ""))
    return lines, [worker["address"] for worker in found["silent"]]


USAGE_ROUTES = (
    WebRoute("GET", "/i/{instance}/usage", show_usage),
    WebRoute("GET", "/i/{instance}/usage.csv", download_usage, has_json=False),
)
