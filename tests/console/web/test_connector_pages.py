"""Connectors in a browser: a real one, whose target rejects a row."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rowtide.client import Client
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_file
from rowtide.connectors.runtime.declarations import Declarations
from tests.support.consoles import RunningConsole, Visitor, serving_console
from tests.support.pages import PageReader
from tests.support.waiting import until

pytestmark = pytest.mark.system

BAD = "<script>alert('bad')</script>"
SHOP = (
    "{source: {kind: mysql, host: 127.0.0.1, port: 1, user: u, password: '${SHOP_PASSWORD}', "
    "tables: [shop.*]}}"
)
"""A source whose server does not answer, and whose password nobody knows here."""
CARD = "4111-1111-1111-1111"


class Receiver(BaseHTTPRequestHandler):
    """A webhook that rejects rows named BAD, unless ``takes_all`` is set."""

    takes_all = False
    taken: tuple[str, ...] = ()

    def do_POST(self) -> None:
        """Answer 400 to a message with a bad row."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [row["key"]["id"] for row in message["rows"]]
        is_bad = BAD in names and not Receiver.takes_all
        if not is_bad:
            Receiver.taken += tuple(names)
        self.send_response(400 if is_bad else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def hook() -> Iterator[str]:
    """The URL of a webhook."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    folder = tmp_path_factory.mktemp("console")
    with serving_console(folder, "--console-hide", "orders.card") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def connector(console: RunningConsole, hook: str) -> None:
    """A connector that posts the rows of a table, one of which is bad."""
    ready = console.ready
    access: dict[str, Any] = {
        "instance": ready.instance,
        "access_key_id": ready.access_key_id,
        "access_key_secret": ready.access_key_secret,
    }
    with Client(ready.endpoint, **access) as client:
        client.create_table("orders", {"id": str}, stream_hours=24)
        for name in ("a", "b", BAD, "c"):
            client.put("orders", {"id": name, "card": CARD})

    async def declare() -> None:
        sink = f"hook: {{table: orders, sink: {{kind: webhook, url: '{hook}'}}}}"
        text = f"connectors: {{{sink}, shop: {SHOP}}}"
        async with Endpoint(ready.endpoint, **access, patience_s=10.0) as endpoint:
            for declaration in parse_file(text, "test"):
                await Declarations(endpoint).declare(declaration)

    asyncio.run(declare())


def read(visitor: Visitor) -> Any:
    answer = visitor.get("/connectors/hook.json")
    assert answer.status == 200, answer.text
    return answer.document


def test_a_parked_row_is_shown_retried_and_gone(console: RunningConsole, admin: Visitor) -> None:
    until(lambda: read(admin)["parked"], lambda: console.output)
    listed, _ = admin.get("/connectors.json").document["connectors"]
    assert (listed["name"], listed["kind"], listed["table"]) == ("hook", "webhook", "orders")
    until(lambda: read(admin)["connector"]["state"] == "running", lambda: console.output)

    page = admin.get("/connectors/hook")
    reader = PageReader(page.text)
    assert reader.dangers == []
    assert BAD in reader.text
    assert CARD not in page.text  # A hidden column.
    assert CARD not in admin.get("/connectors/hook.json").text
    assert "Retry" in reader.text

    [parked] = read(admin)["parked"]
    assert admin.change("/connectors/hook/retry", {"id": "absent"}).status == 404
    assert admin.change("/connectors/hook/retry", {}).status == 400
    Receiver.takes_all = True
    done = admin.change("/connectors/hook/retry", {"id": parked["id"]})
    assert (done.status, done.location) == (303, "/connectors/hook?instance=demo")
    until(lambda: read(admin)["parked"] == [], lambda: console.output)
    assert BAD in Receiver.taken
    assert "change key=" in console.output
    assert f"parked={parked['id']}" in console.output


def test_a_connector_is_paused_and_resumed(console: RunningConsole, admin: Visitor) -> None:
    assert admin.change("/connectors/hook/pause").status == 303
    assert "is paused as soon as" in admin.get("/connectors/hook").text
    until(lambda: read(admin)["connector"]["state"] == "paused", lambda: console.output)
    assert ">Resume<" in admin.get("/connectors/hook").text
    assert admin.change("/connectors/hook/resume").status == 303
    until(lambda: read(admin)["connector"]["state"] == "running", lambda: console.output)


def test_a_connector_is_rewound(console: RunningConsole, admin: Visitor) -> None:
    until(lambda: read(admin)["connector"]["state"] == "running", lambda: console.output)
    Receiver.takes_all, Receiver.taken = True, ()
    assert admin.change("/connectors/hook/rewind", {"to": "oldest"}).status == 303
    until(lambda: {"a", "b", "c", BAD} <= {*Receiver.taken}, lambda: console.output)
    for wrong in ({}, {"to": "tomorrow"}, {"to": "minutes"}, {"to": "minutes", "minutes": "-1"}):
        answer = admin.change("/connectors/hook/rewind", wrong)
        assert answer.status == 400
        assert "Choose a place" in answer.text


def test_a_source_begins_again_with_its_rows_alone(admin: Visitor) -> None:
    page = PageReader(admin.get("/connectors/shop").text)
    assert "The source copies all its rows again" in page.text
    refused = admin.change("/connectors/shop/rewind", {"to": "oldest"})
    assert refused.status == 400
    assert "shop is a source" in refused.text
    assert admin.change("/connectors/shop/rewind", {"to": "rows"}).status == 303
    assert "shop is rewound." in admin.get("/connectors/shop").text


def test_a_reader_sees_no_button_and_changes_nothing(
    console: RunningConsole, admin: Visitor
) -> None:
    reader = console.log_in(read_only=True)
    page = reader.get("/connectors/hook").text
    assert "hook" in page
    assert "/pause" not in page
    assert "/rewind" not in page
    for action in ("pause", "rewind", "retry", "skip"):
        assert reader.change(f"/connectors/hook/{action}", {"to": "rows"}).status == 403
    assert read(admin)["connector"]["state"] != "paused"


def test_an_unknown_connector_is_named(admin: Visitor) -> None:
    answer = admin.get("/connectors/absent")
    assert answer.status == 404
    assert "There is no connector absent in this instance." in answer.text
    assert admin.change("/connectors/absent/pause").status == 404
