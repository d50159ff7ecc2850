"""Consumers of a table's stream: the readers of each, and how far behind they are."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import LEASE_TABLE, START, TableLeases
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.lag import Lag, measure_lag
from rowtide.console.web.render import render
from rowtide.console.web.routes import CALLS, WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected

__all__ = ["CONSUMER_ROUTES"]

CONSUMERS_MAX = 100
"""Consumers of one table in a page; each costs a few requests."""


async def show_consumers(request: web.Request) -> web.Response:
    """Return the consumers of a table with their lag."""
    instance, table = request.match_info["instance"], request.match_info["table"]
    endpoint = request.app[CALLS].endpoint_of(session_of(request).credentials, instance)
    described = await endpoint.call(
        "DescribeTable", pb.DescribeTableRequest(table_name=table), pb.DescribeTableResponse
    )
    has_stream = described.stream_details.enable_stream
    names = await _consumers_of(endpoint, table) if has_stream else []
    found = [await _consumer(endpoint, table, name) for name in names[:CONSUMERS_MAX]]
    return render(
        request,
        "consumers.html",
        instance=instance,
        table=table,
        has_stream=has_stream,
        consumers=found,
        omitted=max(0, len(names) - CONSUMERS_MAX),
    )


async def _consumers_of(endpoint: Endpoint, table: str) -> list[str]:
    """Return the consumers that have read a table: one small read for each consumer there is."""
    names: list[str] = []
    start = _edge_key(variant.V_INF_MIN, variant.V_INF_MIN)
    while True:
        request = pb.GetRangeRequest(
            table_name=LEASE_TABLE,
            direction=pb.FORWARD,
            max_versions=1,
            limit=1,
            inclusive_start_primary_key=start,
            exclusive_end_primary_key=_edge_key(variant.V_INF_MAX, variant.V_INF_MAX),
            columns_to_get=["epoch"],
        )
        try:
            page = await endpoint.call("GetRange", request, pb.GetRangeResponse)
        except Rejected as error:
            if error.code == "OTSObjectNotExist":
                return names  # No consumer has ever read a stream.
            raise
        rows = plainbuffer.decode_rows(page.rows) if page.rows else ()
        if not rows:
            return names
        text = rows[0].key[0][1]
        name, _, of_table = str(variant.decode(text)).rpartition("/")
        if of_table == table:
            names.append(name)
        start = _edge_key(text, variant.V_INF_MAX)


def _edge_key(consumer: bytes, shard: bytes) -> bytes:
    return HEADER + plainbuffer.encode_row([(b"consumer", consumer), (b"shard", shard)], [])


async def _consumer(endpoint: Endpoint, table: str, name: str) -> dict[str, Any]:
    leases = TableLeases(endpoint, name)
    lag = await measure_lag(ApiSource(endpoint, table), leases)
    rows = await leases.read(table)
    owners: dict[str, int] = {}
    for shard_id, row in rows.items():
        if shard_id != START and row.owner and not row.ended:
            owners[row.owner] = owners.get(row.owner, 0) + 1
    return {
        "name": name,
        "readers": [{"reader": owner, "shards": count} for owner, count in sorted(owners.items())],
        **_lag(lag),
    }


def _lag(lag: Lag) -> dict[str, Any]:
    return {
        "has_begun": lag.begun,
        "records": lag.records,
        "seconds": round(lag.seconds, 3),
        "lost_shards": list(lag.lost),
        "rows_read": lag.read if lag.unread else None,
        "rows_left_s": lag.left_s if lag.unread and lag.left_s >= 0 else None,
    }


CONSUMER_ROUTES = (WebRoute("GET", "/i/{instance}/t/{table}/consumers", show_consumers),)
