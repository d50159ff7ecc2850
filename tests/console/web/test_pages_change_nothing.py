"""A GET changes nothing: neither the catalog nor any row, whatever page is opened."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_file
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.console.process.app import ROUTES
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.console.feed.feed_client import FeedClient
from tests.support.consoles import RunningConsole, Visitor, serving_console
from tests.support.waiting import until

pytestmark = pytest.mark.system

SINK = "hook: {table: orders, sink: {kind: webhook, url: 'http://127.0.0.1:1/'}}"
SOURCE = (
    "shop: {source: {kind: mysql, host: 127.0.0.1, port: 1, user: u, password: p, tables: [s.*]}}"
)
PLACES = {"instance": "demo", "table": "orders"}
NAMES = {"name": ("hook", "shop")}
"""What takes the place of a name in braces in the path of a page, if it is not in ``PLACES``."""
FEED = "/stream/{instance}/{table}"
PAGES = sorted({route.path for route in ROUTES if route.method == "GET"} - {FEED})


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console with connectors that never run, so nothing but a page could write."""
    folder = tmp_path_factory.mktemp("console")
    with serving_console(folder, "--connectors", "false") as running:
        declare(running)
        yield running


def declare(console: RunningConsole) -> None:
    """Create a table and declare connectors and a token."""
    ready = console.ready
    with Client(**ready._asdict()) as client:
        client.create_table("orders", {"id": str}, stream_hours=24)
        client.put("orders", {"id": "a", "total": 1})
    with ProtocolClient(**ready._asdict(), timeout_s=30.0) as admin:
        admin.call_json("RowtideCreateToken", {"table": "orders"})

    async def declare_connectors() -> None:
        async with Endpoint(**ready._asdict(), patience_s=10.0) as endpoint:
            for declaration in parse_file(f"connectors: {{{SINK}, {SOURCE}}}", "test"):
                await Declarations(endpoint).declare(declaration)

    asyncio.run(declare_connectors())


def read_state(console: RunningConsole) -> dict[str, Any]:
    """Return the catalog, and where the log of each shard ends: a write of a row moves it."""
    with ProtocolClient(**console.ready._asdict(), timeout_s=30.0) as client:
        listed = client.call("ListTable", pb.ListTableRequest(), pb.ListTableResponse)
        loads = client.call_json("RowtideListLoads", {})["shards"]
        return {
            "instances": client.call_json("RowtideListInstances", {}),
            "keys": client.call_json("RowtideListKeys", {}),
            "tokens": client.call_json("RowtideListTokens", {}),
            "tables": sorted(listed.table_names),
            "shards": {
                name: client.call_json("RowtideListShards", {"table": name})
                for name in sorted(listed.table_names)
            },
            "ends": {shard: load["end"] for shard, load in loads.items()},
        }


def addresses() -> list[str]:
    """Return an address of each page, with ``.json`` too; and of each connector."""
    found: list[str] = []
    for pattern in PAGES:
        plain = re.sub(r"\{(\w+)\}", lambda name: PLACES.get(name[1], name[0]), pattern)
        named = re.search(r"\{(\w+)(:[^{}]*)?\}", plain)
        values = NAMES.get(named[1], ("style.css",)) if named else ("",)
        found += [re.sub(r"\{\w+(:[^{}]*)?\}", value, plain) for value in values]
    table = "/i/demo/t/orders"
    found += [f"{table}/row?key1=a&versions=total", f"{table}/rows?filter=total+%3D+1"]
    found += ["/connectors?instance=demo", f"{table}/live?begin=rows", "/login?to=/", "/absent"]
    return found


def visit(visitor: Visitor, path: str) -> None:
    place, _, query = path.partition("?")
    for address in (path, f"{'/health' if place == '/' else place}.json?{query}"):
        answer = visitor.get(address)
        assert answer.status < 500, (address, answer.text)
        assert "Traceback" not in answer.text


def follow(console: RunningConsole, visitor: Visitor, **parameters: str) -> None:
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    follower = FeedClient("/stream/demo/orders", headers={"Cookie": cookies}, **parameters)
    asyncio.run(follower.take(console.url, "records", "rows"))


def test_no_page_and_no_feed_changes_anything(console: RunningConsole) -> None:
    visitors = [
        console.log_in(admin=admin, read_only=read_only)
        for admin in (True, False)
        for read_only in (True, False)
    ]
    before = read_state(console)
    assert before["tables"] == ["orders", "rowtide_connectors"]
    for visitor in visitors:
        for path in addresses():
            visit(visitor, path)
            assert read_state(console) == before, path
    for begin in ("oldest", "rows"):
        follow(console, visitors[0], begin=begin)
        assert read_state(console) == before, begin


def test_a_connector_that_never_ran_is_shown_as_such(console: RunningConsole) -> None:
    reader = console.log_in(admin=False, read_only=True)
    listed = {one["name"]: one for one in reader.get("/connectors.json").document["connectors"]}
    assert {name: one["state"] for name, one in listed.items()} == {
        "hook": "not running",
        "shop": "not running",
    }
    assert listed["hook"]["troubles"] == []
    assert reader.get("/i/demo/t/orders/consumers.json").document["consumers"] == []


def test_the_state_that_is_compared_shows_each_change(console: RunningConsole) -> None:
    """The comparison above would find a row that is written, and a table that is made."""
    before = read_state(console)
    with Client(**console.ready._asdict()) as client:
        client.put("orders", {"id": "b"})
        until(lambda: read_state(console)["ends"] != before["ends"])
        client.create_table("another", {"id": str})
    assert read_state(console)["tables"] != before["tables"]
