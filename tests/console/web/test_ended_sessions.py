"""A session that has ended is said so, and the log-in leads back to the page where it ended."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from rowtide.client import Client
from tests.support.consoles import RunningConsole, Visitor
from tests.support.pages import PageReader

pytestmark = pytest.mark.system

PAGE = "/i/demo/t/orders/rows?filter=total+%3D+1&columns=total"
ENDED = "Your session has ended."


@pytest.fixture(scope="module", autouse=True)
def table(console: RunningConsole) -> None:
    """A table with a row."""
    with Client(**console.ready._asdict()) as client:
        client.create_table("orders", {"id": str})
        client.put("orders", {"id": "a", "total": 1})


@pytest.fixture
def returned(console: RunningConsole) -> Visitor:
    """A visitor whose session the console does not know, as after its restart."""
    visitor = console.log_in()
    for name in visitor.cookies:
        visitor.cookies[name] = "of-a-console-that-was-killed"
    return visitor


def test_the_log_in_says_that_the_session_has_ended_and_leads_back(returned: Visitor) -> None:
    answer = returned.get(PAGE)
    assert answer.status == 303
    place = urlsplit(answer.location)
    assert (place.path, parse_qs(place.query)["to"]) == ("/login", [PAGE])
    page = returned.get(answer.location)
    assert ENDED in page.text
    assert "when the console restarts" in page.text
    found = re.search(r'name="to" value="([^"]*)"', page.text)
    assert found
    done = returned.post("/login", {**returned.key, "to": unescape(found[1])})
    assert (done.status, done.location) == (303, PAGE)
    assert returned.get(PAGE).status == 200
    assert ENDED not in returned.get("/login").text


def test_somebody_who_had_no_session_or_left_it_is_not_told_that_one_ended(
    console: RunningConsole,
) -> None:
    stranger = console.visitor()
    assert ENDED not in stranger.get(stranger.get(PAGE).location).text
    leaver = console.log_in()
    leaver.change("/logout")
    leaver.cookies = {name: value for name, value in leaver.cookies.items() if value}
    assert ENDED not in leaver.get("/login").text


def test_a_form_of_an_ended_session_changes_nothing_and_leads_back(
    console: RunningConsole, returned: Visitor
) -> None:
    referer = f"http://{returned.host}{PAGE}"
    answer = returned.post(
        "/i/demo/t/orders/row", {"csrf": "old", "do": "delete"}, {"Referer": referer}
    )
    assert answer.status == 401
    assert "Nothing was changed." in answer.text
    [link] = [one for one in PageReader(answer.text).links if one.startswith("/login")]
    assert parse_qs(urlsplit(link).query)["to"] == [PAGE]
    with Client(**console.ready._asdict()) as client:
        assert client.get("orders", {"id": "a"}) == {"id": "a", "total": 1}


@pytest.mark.parametrize(
    ("referer", "to"),
    [
        ("", "/"),
        ("http://[", "/"),
        ("nonsense", "/"),
        ("http://evil.example//evil.example/", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
def test_a_strange_referer_leads_nowhere_else(returned: Visitor, referer: str, to: str) -> None:
    answer = returned.post("/keys", {}, {"Referer": referer})
    assert answer.status == 401
    [link] = [one for one in PageReader(answer.text).links if one.startswith("/login")]
    page = returned.get(link)
    found = re.search(r'name="to" value="([^"]*)"', page.text)
    assert found
    assert unescape(found[1]) == to
