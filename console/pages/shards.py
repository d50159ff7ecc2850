"""The shards of a table as a tree: which came of which, where they are, how far their logs go.

Splitting, merging and moving are changes that the visitor's key signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from aiohttp import web

from rowtide.console.pages.figures import shard_loads
from rowtide.console.pages.health import HEALTH
from rowtide.console.pages.shard_targets import MoveTarget, find_targets
from rowtide.console.pages.tables import table_address
from rowtide.console.web.audit import audit
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import redirect, render
from rowtide.console.web.routes import WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.console.web.visitor_calls import call_for_visitor

__all__ = ["SHARD_ROUTES", "TreeLine", "order_as_tree"]

LINES_SHOWN = 180
"""Shards in the page. A table with more shows open ones first."""

NAME_SHOWN_MAX = 100
"""Characters of a wrong name in an error."""

REFRESH_S = 5


class TreeLine(NamedTuple):
    """A shard at its place in the tree. ``branch`` is drawn before its id."""

    shard: dict[str, Any]
    branch: str


async def show_shards(request: web.Request) -> web.Response:
    """Return the shards of a table."""
    named, table = request.match_info["instance"], request.match_info["table"]
    found = await call_for_visitor(request, "RowtideListShards", {"table": table})
    shards: list[dict[str, Any]] = found["shards"]
    is_cut = len(shards) > LINES_SHOWN
    if is_cut:
        shards = sorted(shards, key=lambda shard: shard["sealed_us"] is not None)[:LINES_SHOWN]
    loads, positions = await shard_loads(request), _positions(request)
    session = session_of(request)
    can_change = session.can_administer
    return render(
        request,
        "shards.html",
        instance=named,
        table=table,
        lines=[
            {
                "branch": line.branch,
                **_shown(line.shard, loads or {}, positions),
                "targets": _targets(request, line.shard) if can_change else [],
            }
            for line in order_as_tree(shards)
        ],
        count=len(found["shards"]),
        is_cut=is_cut,
        slots=found["slots"],
        mergeable=[list(pair) for pair in find_mergeable(found["shards"])],
        can_change=can_change,
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


def _targets(request: web.Request, shard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where a shard may move, as the console saw the cluster last."""
    if shard["state"] != "open":
        return []
    return [target._asdict() for target in find_targets(request.app[HEALTH].workers, shard["slot"])]


async def split_shard(request: web.Request) -> web.Response:
    """Split a shard at a partition key, or at its middle."""
    form = await request.post()
    shard, at = str(form.get("shard", "")), str(form.get("at", ""))
    fields = {"table": request.match_info["table"], "shard": shard}
    audit(request, shard=shard)
    found = await call_for_visitor(
        request, "RowtideSplitShard", fields | ({"at": at} if at else {})
    )
    return _return(request, "shards.split_done", found)


async def merge_shards(request: web.Request) -> web.Response:
    """Merge two shards that are beside each other."""
    form = await request.post()
    shards = str(form.get("shards", "")).split()
    if len(shards) != 2:
        raise RequestRefused(400, "shards.two_needed")
    audit(request, shards=",".join(shards))
    fields = {"table": request.match_info["table"], "shards": shards}
    return _return(
        request, "shards.merge_done", await call_for_visitor(request, "RowtideMergeShards", fields)
    )


async def move_shard(request: web.Request) -> web.Response:
    """Move a shard to a worker: to the slot of it that has the fewest shards."""
    form = await request.post()
    name, worker = str(form.get("shard", "")), str(form.get("worker", ""))
    table = request.match_info["table"]
    audit(request, shard=name, worker=worker)
    target = await _find_target(request, table, name, worker)
    audit(request, slot=target.slot)
    fields = {"table": table, "shard": name, "slot": target.slot}
    found = await call_for_visitor(request, "RowtideMoveShard", fields)
    return _return(request, "shards.move_done", found, worker=worker)


async def _find_target(request: web.Request, table: str, name: str, worker: str) -> MoveTarget:
    """Return the slot of a worker for a shard, by the cluster's present state.

    Raises ``RequestRefused`` if there is no such open shard, or no slot for it there.
    """
    shards = (await call_for_visitor(request, "RowtideListShards", {"table": table}))["shards"]
    shard = next((one for one in shards if one["shard"] == name), None)
    if shard is None or shard["state"] != "open":
        raise RequestRefused(400, "shards.not_open", shard=name[:NAME_SHOWN_MAX])
    workers = (await call_for_visitor(request, "RowtideClusterStatus", {}))["workers"]
    for target in find_targets(workers, shard["slot"]):
        if target.worker == worker:
            return target
    raise RequestRefused(400, "shards.no_slot", worker=worker[:NAME_SHOWN_MAX])


def _return(
    request: web.Request, notice: str, found: dict[str, Any], **values: object
) -> web.Response:
    named, table = request.match_info["instance"], request.match_info["table"]
    text = notice if found["done"] else "shards.under_way"
    return redirect(
        request,
        f"{table_address(named, table)}/shards",
        text,
        parents=", ".join(found["parents"]),
        children=", ".join(found["children"]),
        **values,
    )


_PATH = "/i/{instance}/t/{table}/shards"
SHARD_ROUTES = (
    WebRoute("GET", _PATH, show_shards),
    WebRoute("POST", f"{_PATH}/split", split_shard, is_change=True),
    WebRoute("POST", f"{_PATH}/merge", merge_shards, is_change=True),
    WebRoute("POST", f"{_PATH}/move", move_shard, is_change=True),
)
