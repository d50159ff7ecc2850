"""Share tokens in a browser: created once, used by a program, revoked."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any

import pytest

from rowtide.client import Client
from rowtide.console.pages.newest_first import ENTRIES_SHOWN
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.support.consoles import RunningConsole, Visitor
from tests.support.pages import HOSTILE, PageReader

pytestmark = pytest.mark.system

AS_JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module", autouse=True)
def table(console: RunningConsole) -> None:
    """A table with a stream."""
    with Client(**console.ready._asdict()) as client:
        client.create_table("orders", {"customer": str, "number": int}, stream_hours=24)
        for name in ("ada", "bob"):
            client.put("orders", {"customer": name, "number": 1})


def read(visitor: Visitor, query: str = "") -> Any:
    answer = visitor.get(f"/tokens.json{query}")
    assert answer.status == 200, answer.text
    return answer.document


def follow(console: RunningConsole, token: str, **parameters: str) -> FeedClient:
    headers = {"Authorization": f"Bearer {token}"}
    follower = FeedClient("/stream/demo/orders", headers=headers, begin="oldest", **parameters)
    asyncio.run(follower.take(console.url, "records"))
    return follower


def test_a_token_is_shown_once_and_follows_what_it_is_for(
    console: RunningConsole, admin: Visitor
) -> None:
    made = admin.change("/tokens", {"instance": "demo", "table": "orders", "key": "bob"})
    assert made.status == 200, made.text
    [token] = {*re.findall(r"rts_[\w-]+", unescape(made.text))}
    assert f"http://{admin.host}/stream/demo/orders" in unescape(made.text)
    page = admin.get("/tokens")
    assert token not in page.text
    assert token not in admin.get("/tokens.json").text
    assert token not in console.output
    [listed] = [one for one in read(admin)["tokens"] if one["id"] in token]
    assert (listed["instance"], listed["table"], listed["key"]) == ("demo", "orders", "bob")
    assert f"created={listed['id']}" in console.output
    followed = follow(console, token, key="bob")
    assert [record["key"]["customer"] for record in followed.records] == ["bob"]

    gone = admin.change(f"/tokens/{listed['id']}/revoke")
    assert (gone.status, gone.location) == (303, "/tokens")
    assert f"The token {listed['id']} is revoked." in admin.get("/tokens").text
    assert listed["id"] not in [one["id"] for one in read(admin)["tokens"]]
    with pytest.raises(Refusal) as refused:
        follow(console, token, key="bob")
    assert refused.value.status == 403
    assert admin.change(f"/tokens/{listed['id']}/revoke").status == 404


def test_a_program_creates_a_token_with_json(console: RunningConsole, admin: Visitor) -> None:
    fields = {"csrf": admin.csrf(), "table": "orders"}
    made = admin.post("/tokens", fields, AS_JSON).document
    assert made["created"]["key"] is None
    assert {record["key"]["customer"] for record in follow(console, made["token"]).records} == {
        "ada",
        "bob",
    }
    done = admin.post(f"/tokens/{made['created']['id']}/revoke", fields, AS_JSON)
    assert done.document["done"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [({}, 400), ({"table": "absent"}, 404), ({"table": "orders", "instance": "absent"}, 404)],
)
def test_a_token_for_what_is_absent_is_refused(
    admin: Visitor, fields: dict[str, str], status: int
) -> None:
    before = read(admin)["tokens"]
    answer = admin.change("/tokens", fields)
    assert answer.status == status, answer.text
    assert "Traceback" not in answer.text
    assert read(admin)["tokens"] == before


def test_a_reader_sees_no_button_and_a_forged_form_changes_nothing(
    console: RunningConsole, admin: Visitor
) -> None:
    admin.change("/tokens", {"table": "orders"})
    before = read(admin)["tokens"]
    reader = console.log_in(read_only=True)
    page = reader.get("/tokens").text
    assert before[0]["id"] in page
    assert 'action="/tokens' not in page
    assert reader.change("/tokens", {"table": "orders"}).status == 403
    assert reader.change(f"/tokens/{before[0]['id']}/revoke").status == 403
    guest = console.log_in(admin=False)
    assert guest.get("/tokens").status == 403
    assert "/tokens" not in guest.get("/").text
    assert guest.change("/tokens", {"table": "orders"}).status == 403
    assert admin.post("/tokens", {"csrf": "wrong", "table": "orders"}).status == 403
    assert read(admin)["tokens"] == before


def test_names_and_keys_of_others_are_text(console: RunningConsole, admin: Visitor) -> None:
    # A session may make 20 changes a second: two share the texts.
    for texts in (HOSTILE[::2], HOSTILE[1::2]):
        visitor = console.log_in()
        for text in texts:
            made = visitor.change("/tokens", {"table": "orders", "key": text})
            assert made.status in (200, 400), made.text
            assert PageReader(made.text).dangers == []
    assert PageReader(admin.get("/tokens").text).dangers == []
    page = PageReader(admin.get("/tokens?table=%3Cscript%3E&instance=%22%3E").text)
    assert page.dangers == []


def test_a_long_list_is_shown_in_pages_of_the_newest_first(
    console: RunningConsole, admin: Visitor
) -> None:
    numbers = range(ENTRIES_SHOWN + 5)
    for visitor in (console.log_in() for _ in range(2)):
        for number in numbers[::2]:
            visitor.change("/tokens", {"table": "orders", "key": f"k{number}"})
    found, query = [], ""
    while True:
        page = read(admin, query)
        assert len(page["tokens"]) <= ENTRIES_SHOWN
        found += page["tokens"]
        if not page["next"]:
            break
        assert f'href="{page["next"]}"' in unescape(admin.get(f"/tokens{query}").text)
        query = page["next"].removeprefix("/tokens")
    assert query
    assert len({one["id"] for one in found}) == len(found) == page["count"]
    times = [one["created_s"] for one in found]
    assert times == sorted(times, reverse=True)
    assert page["first"] == "/tokens"
    assert admin.get("/tokens?before=yesterday").status == 400


def test_the_page_speaks_chinese(admin: Visitor) -> None:
    admin.cookies["rowtide_language"] = "zh"
    assert "共享令牌" in admin.get("/tokens").text
    assert "令牌已创建" in admin.change("/tokens", {"table": "orders"}).text
