"""The tables of an instance, and one table: how large, how busy, how fast; the last hour by the
second.

The visitor's key says which tables there are. What all viewers share comes from the console's own
memory, so a page that renews itself costs the workers no more than one request.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from aiohttp import web

from rowtide.client.row_values import AUTO_INCREMENT
from rowtide.client.table_requests import TableDescription, describe
from rowtide.console.pages.figures import (
    NOW_S,
    SAMPLER,
    after_of,
    errors_chart,
    instance_of,
    latency_chart,
    minutes_of,
    rate_of,
    requests_chart,
    shard_loads,
    units_of_hour,
)
from rowtide.console.web.render import render
from rowtide.console.web.routes import CALLS, WebRoute, wants_json
from rowtide.console.web.sessions import credentials_of, session_of
from rowtide.console.workers.sampler import HourOfTable
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["TABLE_ROUTES", "table_address"]

TABLES_SHOWN = 100
"""Tables of one page. With the minutes of the chart, less than 200 rows are in the page."""

LINES_MAX = 4
"""Lines of a chart: the busiest tables. The style has as many colours."""

REFRESH_S = 5
TYPES = {int: "integer", str: "string", bytes: "binary", float: "double", bool: "boolean"}


def table_address(instance: str, table: str) -> str:
    """Return the address of a table's first page."""
    return f"/i/{quote(instance)}/t/{quote(table)}"


async def show_tables(request: web.Request) -> web.Response:
    """Return the tables of an instance, a page of them by name."""
    named, instance = request.match_info["instance"], instance_of(request)
    answer = await request.app[CALLS].call(
        credentials_of(request), named, "ListTable", pb.ListTableRequest()
    )
    sampler, names = request.app[SAMPLER], sorted(answer.table_names)
    begin = request.query.get("from", "")
    listed = [name for name in names if name >= begin]
    shown, following = listed[:TABLES_SHOWN], listed[TABLES_SHOWN:]
    busiest = [name for name in sampler.tables(instance) if name in names][:LINES_MAX]
    hours = {name: sampler.hour(instance, name) for name in busiest}
    return render(
        request,
        "tables.html",
        instance=named,
        instances=[
            {"name": name, "address": f"/i/{quote(name)}/tables"}
            for name in session_of(request).instances
        ],
        tables=await _list_figures(request, named, shown),
        count=len(names),
        first=f"/i/{quote(named)}/tables" if begin else "",
        next=f"/i/{quote(named)}/tables?from={quote(following[0])}" if following else "",
        busiest=busiest,
        minutes=_minutes_by_table(hours),
        charts=_charts_of_tables(request, hours),
        until_s=sampler.until_s,
        figures_problem=sampler.failure,
        refresh_s=REFRESH_S,
    )


def _charts_of_tables(request: web.Request, hours: dict[str, HourOfTable]) -> dict[str, Any]:
    """Return the data of the chart, which only programs and the chart itself ask for."""
    after = after_of(request)
    return {"requests": requests_chart(hours, after)} if wants_json(request) else {}


def _charts_of_table(request: web.Request, name: str, hour: HourOfTable) -> dict[str, Any]:
    """Return the data of a table's charts, which only programs and charts ask for."""
    after = after_of(request)
    if not wants_json(request):
        return {}
    return {
        "requests": requests_chart({name: hour}, after),
        "errors": errors_chart(hour, after, name),
        "latency": latency_chart(hour, after),
    }


def _minutes_by_table(hours: dict[str, HourOfTable]) -> list[dict[str, Any]]:
    """Return the requests of each line by the minute, newest first."""
    minutes: dict[int, dict[str, int]] = {}
    for name, hour in hours.items():
        for minute in minutes_of(hour):
            minutes.setdefault(minute["minute_s"], {})[name] = minute["requests"]
    return [
        {"minute_s": minute, "requests": [minutes[minute].get(name, 0) for name in hours]}
        for minute in sorted(minutes, reverse=True)
    ]


async def _list_figures(
    request: web.Request, instance: str, names: list[str]
) -> list[dict[str, Any]]:
    sampler = request.app[SAMPLER]
    loads, units = await shard_loads(request), await units_of_hour(request, instance.lower())
    sizes: dict[str, tuple[int, int]] = {}
    for load in (loads or {}).values():
        if load["instance"].lower() == instance.lower():
            size, shards = sizes.get(load["table"], (0, 0))
            sizes[load["table"]] = size + load["bytes"], shards + 1
    found = []
    for name in names:
        minute = sampler.hour(instance.lower(), name, after=sampler.until_s - 60)
        now = minute.last(NOW_S)
        of_disk = (None, None) if loads is None else sizes.get(name, (0, 0))
        of_hour = (None, None) if units is None else units.get(name, (0, 0))
        rate = rate_of(minute.last(60))
        found.append(
            {
                "name": name,
                "address": table_address(instance, name),
                "requests_per_s": now.requests / NOW_S,
                "errors_per_s": now.errors / NOW_S,
                "p50_ms": rate["p50_ms"],
                "p99_ms": rate["p99_ms"],
                "bytes": of_disk[0],
                "shards": of_disk[1],
                "read_units": of_hour[0],
                "write_units": of_hour[1],
            }
        )
    return found


async def show_table(request: web.Request) -> web.Response:
    """Return one table: what it is, and its last hour."""
    named, instance = request.match_info["instance"], instance_of(request)
    asked = pb.DescribeTableRequest(table_name=request.match_info["table"])
    answer = await request.app[CALLS].call(credentials_of(request), named, "DescribeTable", asked)
    described = describe(answer)
    sampler = request.app[SAMPLER]
    hour = sampler.hour(instance, described.name)
    [figures] = await _list_figures(request, named, [described.name])
    return render(
        request,
        "table.html",
        instance=named,
        table=described.name,
        description=_describe(described),
        figures=figures,
        minutes=minutes_of(hour),
        charts=_charts_of_table(request, described.name, hour),
        until_s=sampler.until_s,
        figures_problem=sampler.failure,
        refresh_s=REFRESH_S,
    )


def _describe(table: TableDescription) -> dict[str, Any]:
    return {
        "key": [
            {
                "name": name,
                "type": "integer" if kind is AUTO_INCREMENT else TYPES[kind],  # type: ignore[index]
                "is_numbered": kind is AUTO_INCREMENT,
            }
            for name, kind in table.key.items()
        ],
        "defined_columns": [
            {"name": name, "type": TYPES[kind]} for name, kind in table.defined_columns.items()
        ],
        "indexes": [
            {
                "name": i.name,
                "key": list(i.key),
                "is_local": i.is_local,
                "is_complete": i.is_complete,
            }
            for i in table.indexes
        ],
        "max_versions": table.max_versions,
        "time_to_live_s": table.time_to_live_s,
        "stream_hours": table.stream_hours,
        "created_s": table.created_us // 1_000_000,
    }


TABLE_ROUTES = (
    WebRoute("GET", "/i/{instance}/tables", show_tables),
    WebRoute("GET", "/i/{instance}/t/{table}", show_table),
)
