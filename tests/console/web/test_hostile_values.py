"""Names and values of others are text in every page, and no secret is in any page or line."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, urlencode

import pytest

from rowtide.client import AsyncClient, Client, Rejected
from rowtide.console.process.app import ROUTES
from tests.support.consoles import RunningConsole, Visitor
from tests.support.pages import HOSTILE, PageReader
from tests.support.waiting import until

pytestmark = pytest.mark.system

TABLE = "hostile"
PAGES = sorted({route.path for route in ROUTES if route.method == "GET" and route.has_json})
QUERY_NAMES = ("instance", "filter", "key1", "from1", "to1", "columns", "after", "to", "begin")


@pytest.fixture(scope="module")
def store(console: RunningConsole) -> Iterator[Client]:
    """A client of the server, whose table has hostile keys, columns and values."""
    with Client(**console.ready._asdict()) as client:
        client.create_table(TABLE, {"id": str}, stream_hours=24)
        for number, text in enumerate(HOSTILE):
            client.put(TABLE, {"id": text, "value": text, "number": number})
            with suppress(Rejected):  # Not every text may name a column.
                client.put(TABLE, {"id": f"column {number}", text: text})
        yield client


@pytest.fixture(scope="module")
def consumer(console: RunningConsole, store: Client) -> str:
    """A consumer with a hostile name that has read the table."""
    name = HOSTILE[0]
    ready = console.ready

    async def read_one() -> None:
        async with (
            AsyncClient(
                ready.endpoint,
                instance=ready.instance,
                access_key_id=ready.access_key_id,
                access_key_secret=ready.access_key_secret,
            ) as client,
            client.changes(TABLE, consumer=name, begin="oldest") as feed,
        ):
            async for _ in feed:
                feed.stop()

    asyncio.run(read_one())
    return name


def check(visitor: Visitor, path: str) -> PageReader:
    answer = visitor.get(path)
    assert answer.status < 500, (path, answer.text)
    assert "Traceback" not in answer.text
    reader = PageReader(answer.text)
    assert reader.dangers == [], path
    assert "Set-Cookie" not in answer.headers, path
    return reader


@pytest.mark.parametrize("pattern", PAGES)
def test_hostile_addresses_are_text(console: RunningConsole, admin: Visitor, pattern: str) -> None:
    for text in HOSTILE:
        path = re.sub(r"\{\w+(:[^{}]*)?\}", lambda _: quote(text, safe=""), pattern)  # noqa: B023
        query = urlencode(dict.fromkeys(QUERY_NAMES, text))
        check(admin, f"{path}?{query}")
    assert admin.get("/").status == 200  # None of them has ended the session.
    for path in ("/login", "/absent"):
        check(console.visitor(), f"{path}?{urlencode({'to': HOSTILE[1]})}")


def test_hostile_rows_are_text(admin: Visitor, store: Client) -> None:
    shown = ""
    for path in (f"/i/demo/t/{TABLE}/rows", f"/i/demo/t/{TABLE}/rows?count=100"):
        shown += check(admin, path).text
    assert "<script>alert(1)</script>" in shown  # As a person would read it.
    for name in ("", "/shards", "/live", "/consumers"):
        check(admin, f"/i/demo/t/{TABLE}{name}")
    for text in HOSTILE[:6]:
        check(admin, f"/i/demo/t/{TABLE}/row?{urlencode({'key1': text})}")


def test_a_hostile_consumer_is_text(admin: Visitor, consumer: str) -> None:
    page = check(admin, f"/i/demo/t/{TABLE}/consumers")
    assert consumer in page.text
    document = admin.get(f"/i/demo/t/{TABLE}/consumers.json").document
    [found] = document["consumers"]
    assert found["name"] == consumer
    assert found["has_begun"]
    assert found["records"] > 0


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_log_in_is_text(console: RunningConsole, text: str) -> None:
    fields = {"access_key_id": text, "access_key_secret": text, "instance": text, "to": text}
    answer = console.visitor().post("/login", fields)
    assert answer.status in (400, 403)
    assert PageReader(answer.text).dangers == []
    # One line of the log stays one line.
    assert not [line for line in console.output.splitlines() if line.startswith("Set-Cookie")]


def pages_of(visitor: Visitor) -> dict[str, str]:
    """Return every page that is reached from the first one, and its data."""
    found: dict[str, str] = {}
    waiting = ["/"]
    while waiting and len(found) < 300:
        path = waiting.pop().partition("#")[0]
        if not path or path in found or path.startswith("/stream/"):
            continue
        answer = visitor.get(path)
        found[path] = answer.text
        if "text/html" in str(answer.headers["Content-Type"]):
            reader = PageReader(answer.text)
            assert reader.dangers == [], path
            waiting += [link for link in reader.links if link.startswith("/")]
    return found


def test_no_secret_is_anywhere(console: RunningConsole, store: Client, consumer: str) -> None:
    admin = console.log_in()
    pages = pages_of(admin)
    assert {"/", "/connectors", "/keys", "/health.json"} <= pages.keys()
    assert len(pages) > 15
    with urllib.request.urlopen(f"{console.ready.endpoint}/metrics", timeout=10) as answer:
        pages["metrics"] = answer.read().decode()
    made = admin.change("/keys", {"rights": "rows"}).text
    secret = re.search(r"<code>([A-Za-z0-9]{30,})</code>", made)
    assert secret, made
    assert admin.get("/absent-page").status == 404
    until(lambda: "change key=" in console.output)
    first_start = console.output.partition("Ctrl-C stops it.")[0]  # Prints the secret to a person.
    pages["log"] = console.output[len(first_start) :]
    secrets = {
        "own secret": console.ready.access_key_secret,
        "secret of the visitor": admin.key["access_key_secret"],
        "new secret": secret[1],
        "session": next(iter(admin.cookies.values())),
    }
    assert all(len(text) > 20 for text in secrets.values())
    assert [
        (name, path) for path, text in pages.items() for name, one in secrets.items() if one in text
    ] == []
