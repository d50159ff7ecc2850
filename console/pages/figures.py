"""Figures of tables as pages show them: lines of a chart by the second, and rows by the minute."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rowtide.console.web.refusals import RequestRefused
from rowtide.console.workers.sampler import HourOfTable, JoinedSecond, Sampler, join_seconds
from rowtide.console.workers.shared_answers import SharedAnswers
from rowtide.core.cluster.table_figures import HOUR_S
from rowtide.core.values.errors import StoreError

__all__ = [
    "ANSWERS",
    "NOW_S",
    "SAMPLER",
    "after_of",
    "errors_chart",
    "instance_of",
    "latency_chart",
    "minutes_of",
    "rate_of",
    "requests_chart",
    "shard_loads",
    "units_of_hour",
]

SAMPLER = web.AppKey("SAMPLER", Sampler)
ANSWERS = web.AppKey("ANSWERS", SharedAnswers)

NOW_S = 10
"""Requests "now" are those of so many seconds; latencies are those of the last minute."""


def instance_of(request: web.Request) -> str:
    """Return the instance that an address names, as the worker's figures name it."""
    return request.match_info["instance"].lower()


def after_of(request: web.Request) -> int:
    """Return the second after which a chart lacks figures; 0: all. Raises ``RequestRefused``."""
    text = request.query.get("after", "0")
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise RequestRefused(400, "tables.bad_after", value=text[:20])
    return int(text)


def requests_chart(hours: Mapping[str, HourOfTable], after: int) -> dict[str, Any]:
    """Return requests by the second, a line for each table."""
    return _chart("requests/s", after, {n: (h, "requests") for n, h in hours.items()}, quiet=0)


def errors_chart(hour: HourOfTable, after: int, label: str) -> dict[str, Any]:
    """Return failed requests by the second."""
    return _chart("errors/s", after, {label: (hour, "errors")}, quiet=0)


def latency_chart(hour: HourOfTable, after: int) -> dict[str, Any]:
    """Return p50 and p99 by the second in milliseconds; no point for a second without requests."""
    lines = {"p50": (hour, "p50_us"), "p99": (hour, "p99_us")}
    return _chart("ms", after, lines, quiet=None)


def _chart(
    unit: str, after: int, lines: Mapping[str, tuple[HourOfTable, str]], *, quiet: int | None
) -> dict[str, Any]:
    until = max((hour.until_s for hour, _ in lines.values()), default=0)
    begin = max(after, until - HOUR_S) + 1
    found = []
    for label, (hour, field) in lines.items():
        values: list[float | None] = [quiet] * max(0, until - begin + 1)
        scale = 1000 if field.endswith("_us") else 1
        seconds, column = hour.columns[0], hour.columns[JoinedSecond._fields.index(field)]
        for second, value in zip(seconds, column, strict=True):
            if second >= begin:
                values[second - begin] = value / scale if scale > 1 else value
        found.append({"label": label, "values": values})
    return {"unit": unit, "seconds": list(range(begin, until + 1)), "lines": found}


def minutes_of(hour: HourOfTable) -> list[dict[str, Any]]:
    """Return the last hour by the minute, newest first; a minute without requests is left out."""
    minutes: dict[int, list[JoinedSecond]] = {}
    for entry in hour.seconds():
        minutes.setdefault(entry.second // 60 * 60, []).append(entry)
    return [
        {"minute_s": minute, **rate_of(join_seconds(minute, minutes[minute]))}
        for minute in sorted(minutes, reverse=True)
    ]


def rate_of(joined: JoinedSecond) -> dict[str, Any]:
    """Return requests, errors and latencies for a page; latencies None without requests."""
    has_requests = joined.requests > 0
    return {
        "requests": joined.requests,
        "errors": joined.errors,
        "p50_ms": joined.p50_us / 1000 if has_requests else None,
        "p99_ms": joined.p99_us / 1000 if has_requests else None,
    }


async def shard_loads(request: web.Request) -> dict[str, dict[str, Any]] | None:
    """Return what is known of each open shard, by its id; None while no worker answers."""
    try:
        found: dict[str, dict[str, Any]] = (await request.app[ANSWERS].ask("RowtideListLoads"))[
            "shards"
        ]
    except StoreError:
        return None
    return found


async def units_of_hour(request: web.Request, instance: str) -> dict[str, tuple[int, int]] | None:
    """Return (read, written) capacity units of the present hour by table; None if unknown."""
    begin_s = int(time.time()) // HOUR_S * HOUR_S
    fields = {"instance": instance, "from": begin_s}
    try:
        found = await request.app[ANSWERS].ask("RowtideConsumption", fields)
    except StoreError:
        return None
    units: dict[str, tuple[int, int]] = {}
    for hour in found["hours"]:
        read, write = units.get(hour["table"], (0, 0))
        units[hour["table"]] = read + hour["read"], write + hour["write"]
    return units
