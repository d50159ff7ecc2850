"""The numbers of a dashboard for programs: events, fresh answers, metrics, and links to share."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from html import unescape
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.support.consoles import ConsoleAnswer, RunningConsole, Visitor, serving_console
from tests.support.dashboards import declare_dashboards, pause_dashboard
from tests.support.waiting import until

pytestmark = pytest.mark.system

FILE = """
dashboards:
  {name}:
    table: {table}
    types: {{city: text, total: double}}
    panels:
      cities: {{query: "SELECT city, count(*) AS n FROM {table} GROUP BY ALL ORDER BY city"}}
      sum: {{chart: number, query: "SELECT sum(total) AS paid FROM {table}"}}
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    with serving_console(tmp_path_factory.mktemp("console")) as running:
        with Client(**running.ready._asdict()) as client:
            for table in ("orders", "bills"):
                client.create_table(table, {"id": str}, stream_hours=24)
        declare_dashboards(running.ready, FILE.format(name="sales", table="orders"))
        declare_dashboards(running.ready, FILE.format(name="debts", table="bills"))
        visitor = running.log_in()
        until(lambda: {state_of(visitor, name) for name in ("sales", "debts")} == {"ready"})
        yield running


def state_of(visitor: Visitor, name: str) -> str:
    found: str = visitor.get(f"/dashboards/{name}.json").document["dashboard"]["state"]
    return found


@pytest.fixture
def store(console: RunningConsole) -> Iterator[Client]:
    with Client(**console.ready._asdict()) as client:
        yield client


def rows_of(answer: ConsoleAnswer, panel: str = "cities") -> Any:
    assert answer.status == 200, answer.text
    return answer.document["dashboard"]["panels"][panel]["rows"]


def follow(visitor: Visitor, name: str = "sales") -> FeedClient:
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    return FeedClient(f"/dashboards/{name}/events", headers={"Cookie": cookie})


async def find(events: AsyncIterator[dict[str, Any]], panel: str, rows: Any) -> dict[str, Any]:
    """Return the first event with these rows of a panel."""
    async for event in events:
        if event["data"].get("panels", {}).get(panel, {}).get("rows") == rows:
            return event
    pytest.fail("the events ended")


async def test_events_have_what_changed_and_where_it_is_exact(
    console: RunningConsole, store: Client
) -> None:
    store.put("orders", {"id": "e1", "city": "Rome", "total": 1.5})
    visitor = console.log_in(admin=False, read_only=True)
    follower = follow(visitor)
    async with follower.connect(console.url) as events:
        first = await find(events, "sum", [[1.5]])
        assert set(first["data"]["panels"]) == {"cities", "sum"}
        assert set(first["data"]) >= {"positions", "as_of", "lag", "status", "state"}
        [at] = first["data"]["positions"].values()
        store.update("orders", {"id": "e1", "total": 2.5})
        second = await find(events, "sum", [[2.5]])
        assert set(second["data"]["panels"]) == {"sum"}
        [later] = second["data"]["positions"].values()
        assert later["sequence"] > at["sequence"]
        assert later["stamp"] > at["stamp"]
    # What was between is nobody's: the viewer gets the present numbers.
    store.update("orders", {"id": "e1", "total": 3.5})
    store.update("orders", {"id": "e1", "total": 4.5})
    async with follower.connect(console.url) as events:
        back = await find(events, "sum", [[4.5]])
        assert "cities" not in back["data"]["panels"]
    store.delete("orders", {"id": "e1"})
    async with follower.connect(console.url) as events:
        await find(events, "cities", [])


def test_a_fresh_answer_has_what_was_acknowledged_before(
    console: RunningConsole, store: Client
) -> None:
    visitor = console.log_in()
    for number in range(20):
        store.put("bills", {"id": "f", "city": "Bern", "total": float(number)})
        answer = visitor.get("/dashboards/debts.json?fresh=1")
        assert rows_of(answer, "sum") == [[float(number)]]
    store.delete("bills", {"id": "f"})
    assert rows_of(visitor.get("/dashboards/debts.json?fresh=1")) == []


def test_a_fresh_answer_of_a_paused_dashboard_fails_in_time_with_words(
    console: RunningConsole, store: Client
) -> None:
    visitor = console.log_in()
    pause_dashboard(console.ready, "debts", is_paused=True)
    try:
        until(lambda: state_of(visitor, "debts") == "paused")
        store.put("bills", {"id": "p", "city": "Bern", "total": 1.0})
        began = time.monotonic()
        answer = visitor.get("/dashboards/debts.json?fresh=1")
        while answer.status == 200:  # Its process had not stopped yet.
            store.put("bills", {"id": "p", "city": "Bern", "total": 1.0})
            began = time.monotonic()
            answer = visitor.get("/dashboards/debts.json?fresh=1")
        assert answer.status == 504
        assert time.monotonic() - began < 10
        assert "do not include everything within 5 s" in answer.document["error"]["message"]
        assert visitor.get("/dashboards/debts.json").status == 200
    finally:
        pause_dashboard(console.ready, "debts", is_paused=False)
    store.delete("bills", {"id": "p"})

    def is_fresh_again() -> bool:
        answer = visitor.get("/dashboards/debts.json?fresh=1")
        return answer.status == 200 and rows_of(answer) == []  # 504 until a process goes on.

    until(is_fresh_again)


def share(console: RunningConsole, name: str = "sales") -> str:
    """Return a token out of the page that shows the link, once."""
    answer = console.log_in().change(f"/dashboards/{name}/share")
    assert answer.status == 200, answer.text
    found = re.search(r"http://[^ <]*/shared#(rts_[\w-]+)", unescape(answer.text))
    assert found, answer.text
    return found[1]


def test_a_link_shows_one_dashboard_and_nothing_else_until_it_is_revoked(
    console: RunningConsole, store: Client
) -> None:
    store.put("orders", {"id": "s", "city": "Oslo", "total": 1.0})
    token = share(console)
    guest = console.visitor()
    assert guest.get("/shared").status == 200
    opened = guest.post("/shared", {"code": token})
    assert (opened.status, token in opened.location) == (303, False)
    page = guest.get(opened.location)
    assert page.status == 200
    assert 'class="wall"' in page.text
    assert 'id="share"' not in page.text
    # A page shows the numbers that are there: those of the last write come a moment later.
    until(lambda: "Oslo" in guest.get(opened.location).text)
    query = opened.location.partition("?")[2]
    json_ = {"Accept": "application/json"}
    assert rows_of(guest.get(f"/dashboards/sales.json?{query}&fresh=1")) == [["Oslo", 1]]
    for path in ("/dashboards/debts", "/dashboards", "/", "/i/demo/t/orders/rows", "/tokens"):
        assert guest.get(f"{path}?{query}").status == 303, path  # To the log-in.
        assert guest.get(f"{path}?{query}", json_).status == 401, path
    bearer = {"Authorization": f"Bearer {token}", **json_}
    program = console.visitor()
    assert program.get("/dashboards/sales.json", bearer).status == 200
    assert program.get("/dashboards/debts.json", bearer).status == 403
    assert program.get(f"/stream/{console.ready.instance}/orders", bearer).status == 403
    with ProtocolClient(**console.ready._asdict()) as admin:
        admin.call_json("RowtideRevokeToken", {"token_id": token.split("_")[1]})
    for visitor, path, headers in (
        (guest, opened.location, {}),
        (program, "/dashboards/sales/events", bearer),
    ):
        refused = visitor.get(path, headers)
        assert refused.status == 403
        assert "unknown or revoked" in refused.text
        assert "Traceback" not in refused.text
    assert token not in console.output
    store.delete("orders", {"id": "s"})


async def test_a_revoked_link_ends_its_events(console: RunningConsole) -> None:
    token = share(console)
    headers = {"Authorization": f"Bearer {token}"}
    follower = FeedClient("/dashboards/sales/events", headers=headers)
    async with follower.connect(console.url) as events:
        assert (await anext(events))["event"] == "numbers"
        with ProtocolClient(**console.ready._asdict()) as admin:
            admin.call_json("RowtideRevokeToken", {"token_id": token.split("_")[1]})
        last = [event async for event in events][-1]
    assert (last["event"], last["data"]["code"]) == ("end", "access_revoked")
    assert "revoked" in last["data"]["reason"]


async def test_a_revoked_key_ends_its_events(console: RunningConsole) -> None:
    visitor = console.log_in(admin=False, read_only=True)
    follower = follow(visitor)
    async with follower.connect(console.url) as events:
        assert (await anext(events))["event"] == "numbers"
        with ProtocolClient(**console.ready._asdict()) as admin:
            key = visitor.key["access_key_id"]
            admin.call_json("RowtideRevokeKey", {"access_key_id": key})
        last = [event async for event in events][-1]
    assert (last["event"], last["data"]["code"]) == ("end", "access_revoked")
    with pytest.raises(Refusal) as refused:
        async with follower.connect(console.url):
            pass
    assert refused.value.status in (401, 403)


@pytest.mark.parametrize("token", ["x", "rts_", "rts_0a_x", "rts_0a_" + "x" * 300, "rts_ü_x"])
def test_a_forged_token_is_refused_with_words(console: RunningConsole, token: str) -> None:
    visitor = console.visitor()
    answer = visitor.post("/shared", {"code": token})
    assert answer.status == 403
    assert "share token" in answer.text
    assert "Traceback" not in answer.text
    if token.isascii():
        headers = {"Authorization": f"Bearer {token}"}
        for path in ("/dashboards/sales.json", "/dashboards/sales/metrics"):
            assert visitor.get(path, headers).status == 403


@pytest.mark.parametrize("form", ["", ".json", "/events", "/metrics"])
def test_an_unknown_dashboard_has_words_and_a_status(console: RunningConsole, form: str) -> None:
    answer = console.log_in().get(f"/dashboards/absent{form}")
    assert answer.status == 404
    assert "There is no dashboard absent in this instance." in answer.text


def test_a_key_of_another_instance_learns_nothing(console: RunningConsole) -> None:
    visitor = console.log_in(admin=False)
    for form in ("", ".json", "/events", "/metrics"):
        answer = visitor.get(f"/dashboards/sales{form}?instance=absent")
        assert answer.status in (401, 403, 404)
        assert "Traceback" not in answer.text


def test_only_an_administrator_shares(console: RunningConsole) -> None:
    for visitor in (console.log_in(admin=False), console.log_in(read_only=True)):
        assert visitor.change("/dashboards/sales/share").status == 403
        assert "/share" not in visitor.get("/dashboards/sales").text


def test_prometheus_reads_the_numbers(console: RunningConsole, store: Client) -> None:
    store.put("orders", {"id": "m", "city": "Bergen", "total": 7.5})
    headers = {"Authorization": f"Bearer {share(console)}"}
    visitor = console.visitor()

    def read() -> dict[tuple[str, str], float]:
        answer = visitor.get("/dashboards/sales/metrics", headers)
        assert answer.status == 200
        return {
            (sample.labels["column"], sample.labels.get("city", "")): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
            if sample.name == "rowtide_dashboard_value"
        }

    until(lambda: read().get(("n", "Bergen")) == 1.0, read)
    assert read()["paid", ""] >= 7.5
    store.delete("orders", {"id": "m"})
