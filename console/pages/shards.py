"""The shards of a table as a tree: which came of which, where they are, how far their logs go.

Splitting and merging are changes that the visitor's key signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from aiohttp import web

from rowtide.console.pages.figures import shard_loads
from rowtide.console.pages.health import HEALTH
from rowtide.console.pages.tables import table_address
from rowtide.console.web.audit import audit
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import redirect, render
from rowtide.console.web.routes import CALLS, WebRoute
from rowtide.console.web.sessions import credentials_of, session_of

__all__ = ["SHARD_ROUTES", "TreeLine", "order_as_tree"]

LINES_SHOWN = 180
"""Shards in the page. A table with more shows open ones first."""

REFRESH_S = 5


class TreeLine(NamedTuple):
    """A shard at its place in the tree. ``branch`` is drawn before its id."""

    shard: dict[str, Any]
    branch: str


async def show_shards(request: web.Request) -> web.Response:
    """Return the shards of a table."""
    named, table = request.match_info["instance"], request.match_info["table"]
    found = await _call(request, "RowtideListShards", {"table": table})
    shards: list[dict[str, Any]] = found["shards"]
    is_cut = len(shards) > LINES_SHOWN
    if is_cut:
        shards = sorted(shards, key=lambda shard: shard["sealed_us"] is not None)[:LINES_SHOWN]
    loads, positions = await shard_loads(request), _positions(request)
    session = session_of(request)
    return render(
        request,
        "shards.html",
        instance=named,
        table=table,
        lines=[
            {"branch": line.branch, **_shown(line.shard, loads or {}, positions)}
            for line in order_as_tree(shards)
        ],
        count=len(found["shards"]),
        is_cut=is_cut,
        slots=found["slots"],
        mergeable=[list(pair) for pair in find_mergeable(found["shards"])],
        can_change=session.is_admin and not session.is_read_only,
        refresh_s=REFRESH_S,
    )


def order_as_tree(shards: Sequence[Mapping[str, Any]]) -> Iterator[TreeLine]:
    """Yield each shard once, children below their parents.

    A child of two parents, which were merged, is below the last of them.
    """
    known = {shard["shard"]: dict(shard) for shard in shards}
    children: dict[str, list[str]] = {}
    roots = []
    for name, shard in known.items():
        parents = [parent for parent in shard["parents"] if parent in known]
        if parents:
            children.setdefault(parents[-1], []).append(name)
        else:
            roots.append(name)
    for root in roots:
        yield from _walk(known, children, root)


def _walk(
    known: Mapping[str, dict[str, Any]], children: Mapping[str, Sequence[str]], root: str
) -> Iterator[TreeLine]:
    """Yield a shard and all below it; without recursion, since a tree may be very deep."""
    waiting = [(root, "", "")]
    while waiting:
        name, branch, below = waiting.pop()
        yield TreeLine(known[name], branch)
        own = children.get(name, ())
        # The last one is pushed first: it is drawn last.
        for number, child in reversed(list(enumerate(own))):
            is_last = number == len(own) - 1
            mark, rest = ("└ ", "  ") if is_last else ("├ ", "│ ")
            waiting.append((child, below + mark, below + rest))


def find_mergeable(shards: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs of open shards that are beside each other and in one slot."""
    opened = [shard for shard in shards if shard["state"] == "open"]
    return [
        (left["shard"], right["shard"])
        for left, right in pairwise(opened)
        if left["slot"] == right["slot"] and left["end"] is not None
        if left["end"] == right["begin"]
    ]


def _positions(request: web.Request) -> dict[str, dict[str, Any]]:
    """Return the last status of open shards, by id."""
    return {
        shard["shard"]: shard
        for worker in request.app[HEALTH].workers
        if "error" not in worker
        for slot in worker["slots"]
        for shard in slot["shards"]
    }


def _shown(
    shard: dict[str, Any],
    loads: Mapping[str, dict[str, Any]],
    positions: Mapping[str, dict[str, Any]],
) -> dict[str, Any]:
    load, position = loads.get(shard["shard"], {}), positions.get(shard["shard"], {})
    return {
        **shard,
        "sealed_s": None if shard["sealed_us"] is None else shard["sealed_us"] // 1_000_000,
        "worker": load.get("worker"),
        "bytes": load.get("bytes"),
        "log_start": position.get("start"),
        "log_end": load.get("end"),
        "waiting": position.get("waiting"),
        "unflushed": position.get("unflushed"),
    }


async def split_shard(request: web.Request) -> web.Response:
    """Split a shard at a partition key, or at its middle."""
    form = await request.post()
    shard, at = str(form.get("shard", "")), str(form.get("at", ""))
    fields = {"table": request.match_info["table"], "shard": shard}
    audit(request, shard=shard)
    found = await _call(request, "RowtideSplitShard", fields | ({"at": at} if at else {}))
    return _return(request, "shards.split_done", found)


async def merge_shards(request: web.Request) -> web.Response:
    """Merge two shards that are beside each other."""
    form = await request.post()
    shards = str(form.get("shards", "")).split()
    if len(shards) != 2:
        raise RequestRefused(400, "shards.two_needed")
    audit(request, shards=",".join(shards))
    fields = {"table": request.match_info["table"], "shards": shards}
    return _return(request, "shards.merge_done", await _call(request, "RowtideMergeShards", fields))


def _return(request: web.Request, notice: str, found: dict[str, Any]) -> web.Response:
    named, table = request.match_info["instance"], request.match_info["table"]
    text = notice if found["done"] else "shards.under_way"
    return redirect(
        request,
        f"{table_address(named, table)}/shards",
        text,
        parents=", ".join(found["parents"]),
        children=", ".join(found["children"]),
    )


async def _call(
    request: web.Request, operation: str, fields: Mapping[str, object]
) -> dict[str, Any]:
    found: dict[str, Any] = await request.app[CALLS].call(
        credentials_of(request), request.match_info["instance"], operation, fields
    )
    return found


_PATH = "/i/{instance}/t/{table}/shards"
SHARD_ROUTES = (
    WebRoute("GET", _PATH, show_shards),
    WebRoute("POST", f"{_PATH}/split", split_shard, is_change=True),
    WebRoute("POST", f"{_PATH}/merge", merge_shards, is_change=True),
)
