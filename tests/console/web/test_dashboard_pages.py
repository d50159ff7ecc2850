"""Dashboards in a browser: a real one, which runs beside the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.client import Client
from tests.support.consoles import RunningConsole, Visitor, serving_console
from tests.support.dashboards import declare_dashboards
from tests.support.pages import PageReader
from tests.support.waiting import until

pytestmark = pytest.mark.system

BAD = "<script>alert('bad')</script>"
FILE = """
dashboards:
  sales:
    table: orders
    types: {city: text, total: double, card: text}
    panels:
      cities:
        title: "<script>alert('title')</script>"
        query: "SELECT city, count(*) AS n, avg(total) AS mean FROM orders GROUP BY ALL ORDER BY n"
      approximate: {query: "SELECT approx_quantile(total, 0.5) AS half FROM orders"}
      secret: {query: "SELECT max(card) AS highest FROM orders"}
"""
CARD = "4111-1111-1111-1111"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    folder = tmp_path_factory.mktemp("console")
    with serving_console(folder, "--console-hide", "orders.card") as running:
        declare(running)
        yield running


def declare(console: RunningConsole) -> None:
    """Create a table with rows, and declare a dashboard over it."""
    ready = console.ready
    with Client(**ready._asdict()) as client:
        client.create_table("orders", {"id": str}, stream_hours=24)
        for number, city in enumerate((BAD, BAD, "Oslo")):
            client.put("orders", {"id": str(number), "city": city, "total": 2.5, "card": CARD})
    declare_dashboards(ready, FILE)


def read(visitor: Visitor) -> Any:
    answer = visitor.get("/dashboards/sales.json")
    assert answer.status == 200, answer.text
    return answer.document


def list_states(visitor: Visitor) -> list[tuple[str, str]]:
    """Return the listed dashboards with their states, which are reported a moment apart."""
    listed = visitor.get("/dashboards.json").document["dashboards"]
    return [(one["name"], one["state"]) for one in listed]


def test_numbers_come_with_their_positions(console: RunningConsole) -> None:
    visitor = console.log_in(admin=False, read_only=True)
    until(lambda: read(visitor)["dashboard"]["state"] == "ready", lambda: read(visitor))
    found = read(visitor)["dashboard"]
    assert found["panels"]["cities"]["rows"] == [["Oslo", 1, 2.5], [BAD, 2, 2.5]]
    assert [c["is_approximate"] for c in found["panels"]["approximate"]["columns"]] == [True]
    assert len(found["positions"]) == 1
    assert found["as_of"].endswith("Z")
    until(lambda: list_states(visitor) == [("sales", "ready")], lambda: list_states(visitor))


def test_a_page_shows_hostile_names_as_text_and_no_hidden_column(console: RunningConsole) -> None:
    visitor = console.log_in(admin=False, read_only=True)
    until(lambda: read(visitor)["dashboard"]["state"] == "ready", lambda: read(visitor))
    page = visitor.get("/dashboards/sales")
    reader = PageReader(page.text)
    assert reader.dangers == []
    assert "Oslo" in page.text
    assert "a column is hidden here" in page.text
    assert CARD not in page.text
    assert CARD not in visitor.get("/dashboards/sales.json").text
    assert "/dashboards/sales" in visitor.get("/dashboards").text


def test_an_unknown_dashboard_is_not_found(console: RunningConsole) -> None:
    answer = console.log_in().get("/dashboards/absent")
    assert answer.status == 404
    assert "There is no dashboard absent in this instance." in answer.text
