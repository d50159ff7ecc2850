"""The pages of tables, shards and capacity units, of a real server and its console."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.client import Client
from tests.support.consoles import RunningConsole, Visitor
from tests.support.waiting import until

pytestmark = pytest.mark.system

TABLES = "/i/demo/tables"
ROWS = 40
HOUR_S, TESTS_S_MAX = 3600.0, 120.0


@pytest.fixture(scope="module")
def flights(store: Client) -> Iterator[str]:
    """A table with rows and a stream.

    Pages show the units of the present hour, so it must not end before the tests have seen them.
    """
    until(lambda: time.time() % HOUR_S < HOUR_S - TESTS_S_MAX, s_max=2 * TESTS_S_MAX)
    store.create_table("flights", {"carrier": str, "number": int}, stream_hours=24)
    store.add_columns("flights", {"delay": int})
    for number in range(ROWS):
        store.put("flights", {"carrier": f"c{number % 4}", "number": number, "delay": number})
    yield "flights"
    store.delete_table("flights")


@pytest.fixture(scope="module")
def reader(console: RunningConsole) -> Visitor:
    """A user with a read-only key that has the admin right."""
    return console.log_in(read_only=True)


@pytest.fixture(scope="module")
def guest(console: RunningConsole) -> Visitor:
    """A user with a read-only key without the admin right."""
    return console.log_in(admin=False, read_only=True)


def data(visitor: Visitor, path: str) -> Any:
    """Return the data of a page."""
    answer = visitor.get(path, {"Accept": "application/json"})
    assert answer.status == 200, answer.text
    return answer.document


def find_table(visitor: Visitor, table: str) -> dict[str, Any]:
    """Return the line of a table in the list."""
    [found] = [one for one in data(visitor, f"{TABLES}.json")["tables"] if one["name"] == table]
    return dict(found)


def count_requests(visitor: Visitor, path: str) -> int:
    """Return the requests of the last hour on a table, whose seconds are over."""
    return sum(data(visitor, path)["charts"]["requests"]["lines"][0]["values"])


def test_a_table_is_listed_with_what_it_is_doing(visitor: Visitor, flights: str) -> None:
    until(lambda: find_table(visitor, flights)["requests_per_s"] > 0)
    found = find_table(visitor, flights)
    assert found["shards"] == 1
    assert found["bytes"] >= 0
    assert found["write_units"] >= ROWS
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    page = visitor.get(TABLES)
    assert page.status == 200
    assert '<a href="/i/demo/t/flights">flights</a>' in page.text


def test_the_last_hour_is_there_by_the_second_and_by_the_minute(
    visitor: Visitor, store: Client, flights: str
) -> None:
    until(lambda: count_requests(visitor, "/i/demo/t/flights.json") == ROWS)
    before = data(visitor, "/i/demo/t/flights.json")["until_s"]
    store.get("flights", {"carrier": "c0", "number": 0})
    until(lambda: count_requests(visitor, f"/i/demo/t/flights.json?after={before}") == 1)
    charts = data(visitor, "/i/demo/t/flights.json")["charts"]
    for name in ("requests", "errors", "latency"):
        seconds = charts[name]["seconds"]
        assert len(seconds) == 3600
        assert seconds == list(range(seconds[0], seconds[0] + 3600))
        assert {len(line["values"]) for line in charts[name]["lines"]} == {3600}
    minutes = data(visitor, "/i/demo/t/flights.json")["minutes"]
    assert sum(minute["requests"] for minute in minutes) == ROWS + 1
    assert [line["label"] for line in charts["latency"]["lines"]] == ["p50", "p99"]
    page = visitor.get("/i/demo/t/flights").text
    assert page.count('data-chart="/i/demo/t/flights.json"') == 3
    assert "<time" in page


def test_a_page_reads_no_rows(visitor: Visitor, flights: str) -> None:
    """Pages renew themselves: they must cost a table nothing."""
    # There are none "now" either before the first figures have come.
    until(lambda: count_requests(visitor, "/i/demo/t/flights.json") >= ROWS)
    until(lambda: find_table(visitor, flights)["requests_per_s"] == 0)
    units = find_table(visitor, flights)["read_units"]
    for path in (TABLES, "/i/demo/t/flights", "/i/demo/t/flights/shards", "/i/demo/usage"):
        assert visitor.get(path).status == 200
    assert find_table(visitor, flights)["requests_per_s"] == 0
    assert find_table(visitor, flights)["read_units"] == units


def test_a_table_page_says_what_the_table_is(visitor: Visitor, flights: str) -> None:
    found = data(visitor, "/i/demo/t/flights.json")["description"]
    assert [column["name"] for column in found["key"]] == ["carrier", "number"]
    assert found["defined_columns"] == [{"name": "delay", "type": "integer"}]
    assert (found["stream_hours"], found["time_to_live_s"]) == (24, None)


@pytest.mark.parametrize("path", ["/i/demo/t/absent", "/i/demo/t/absent/shards"])
def test_a_table_that_is_absent_is_said_so(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 404
    assert "Requested table does not exist" in answer.text


@pytest.mark.parametrize(
    "path",
    [
        f"{TABLES}.json?after=-1",
        f"{TABLES}.json?after=x",
        f"{TABLES}.json?after=" + "9" * 40,
        "/i/demo/usage?hours=0",
        "/i/demo/usage?hours=1e9",
        "/i/demo/usage?hours=" + "9" * 4000,
        "/i/demo/usage.csv?hours=no",
    ],
)
def test_a_wrong_parameter_is_refused_with_words(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 400
    assert "must be a" in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["/i/absent/tables", "/i/absent/usage", "/i/absent/usage.csv"])
def test_another_instance_is_refused_by_the_worker(console: RunningConsole, path: str) -> None:
    answer = console.log_in().get(path)
    assert answer.status == 403
    assert "The instance is not found" in answer.text


def test_shards_are_split_and_merged_by_buttons(visitor: Visitor, flights: str) -> None:
    path = f"/i/demo/t/{flights}/shards"
    [whole] = data(visitor, f"{path}.json")["lines"]
    assert (whole["state"], whole["begin"], whole["end"]) == ("open", None, None)
    assert whole["log_end"] > ROWS
    answer = visitor.change(f"{path}/split", {"shard": whole["shard"], "at": "c2"})
    assert (answer.status, answer.location) == (303, path)
    page = visitor.get(path).text
    assert "was split into" in page
    opened = [line for line in data(visitor, f"{path}.json")["lines"] if line["state"] == "open"]
    assert [(line["begin"], line["end"]) for line in opened] == [(None, "c2"), ("c2", None)]
    assert [line["branch"] for line in opened] == ["├ ", "└ "]
    assert {tuple(line["parents"]) for line in opened} == {(whole["shard"],)}
    [pair] = data(visitor, f"{path}.json")["mergeable"]
    assert pair == [line["shard"] for line in opened]
    assert visitor.change(f"{path}/merge", {"shards": " ".join(pair)}).status == 303
    opened = [line for line in data(visitor, f"{path}.json")["lines"] if line["state"] == "open"]
    assert [line["parents"] for line in opened] == [pair]


def test_a_shard_is_moved_by_a_button(
    visitor: Visitor, console: RunningConsole, store: Client
) -> None:
    store.create_table("moving", {"k": str}, stream_hours=24)
    store.put("moving", {"k": "a"})
    path = "/i/demo/t/moving/shards"

    def opened() -> dict[str, Any]:
        [line] = [one for one in data(visitor, f"{path}.json")["lines"] if one["state"] == "open"]
        return dict(line)

    until(lambda: opened()["targets"])
    before = opened()
    [target] = before["targets"]
    assert target["is_owner"]  # One worker: the shard goes to another of its slots.
    assert target["slot"] != before["slot"]
    assert "Writes to it pause" in visitor.get(path).text
    asked = {"shard": before["shard"], "worker": target["worker"]}
    done = visitor.change(f"{path}/move", asked)
    assert (done.status, done.location) == (303, path)
    assert "was moved to" in visitor.get(path).text
    after = opened()
    assert after["parents"] == [before["shard"]]
    assert after["slot"] != before["slot"]
    assert store.get("moving", {"k": "a"}) == {"k": "a"}
    line = next(one for one in console.output.splitlines() if f"path={path}/move" in one)
    assert f"shard={before['shard']}" in line
    assert f"slot={after['slot']}" in line
    # The page of a moment ago names a shard that has ended.
    refused = visitor.change(f"{path}/move", asked)
    assert refused.status == 400
    assert "has no open shard" in refused.text
    store.delete_table("moving")


def test_a_wrong_change_of_shards_is_refused_with_words(visitor: Visitor, flights: str) -> None:
    path = f"/i/demo/t/{flights}/shards"
    for end, fields, words in (
        ("split", {"shard": "s99999"}, "has no open shard"),
        ("merge", {"shards": "s1"}, "exactly two shards"),
        ("merge", {"shards": "s1 s2"}, "has no open shard"),
        ("move", {"shard": "s99999", "worker": "w:1"}, "has no open shard"),
        ("move", {}, "has no open shard"),
    ):
        answer = visitor.change(f"{path}/{end}", fields)
        assert answer.status == 400
        assert words in answer.text


def test_a_worker_that_cannot_take_a_shard_is_named(visitor: Visitor, flights: str) -> None:
    path = f"/i/demo/t/{flights}/shards"
    opened = [line for line in data(visitor, f"{path}.json")["lines"] if line["state"] == "open"]
    answer = visitor.change(f"{path}/move", {"shard": opened[0]["shard"], "worker": "gone:1"})
    assert answer.status == 400
    assert "The worker gone:1 has no open slot for this shard." in answer.text


def test_a_read_only_visitor_has_no_buttons_and_a_forged_form_changes_nothing(
    reader: Visitor, flights: str
) -> None:
    path = f"/i/demo/t/{flights}/shards"
    before = data(reader, f"{path}.json")
    assert not before["can_change"]
    page = reader.get(path).text
    assert "/split" not in page
    assert "/merge" not in page
    assert "/move" not in page
    [shard] = [line["shard"] for line in before["lines"] if line["state"] == "open"]
    assert reader.change(f"{path}/split", {"shard": shard, "at": "c1"}).status == 403
    moved = {"shard": shard, "worker": before["lines"][-1]["worker"]}
    assert reader.change(f"{path}/move", moved).status == 403
    after = data(reader, f"{path}.json")
    assert [line["shard"] for line in after["lines"]] == [line["shard"] for line in before["lines"]]


def test_a_visitor_without_the_admin_right_sees_tables_and_units_but_no_shards(
    guest: Visitor, flights: str
) -> None:
    assert find_table(guest, flights)["write_units"] >= ROWS
    assert guest.get("/i/demo/usage").status == 200
    answer = guest.get(f"/i/demo/t/{flights}/shards")
    assert answer.status == 403


def test_units_are_there_by_hour_and_table_and_as_csv(visitor: Visitor, flights: str) -> None:
    def lines() -> list[dict[str, Any]]:
        found = data(visitor, "/i/demo/usage.json?hours=24&table=flights")["lines"]
        return list(found)

    until(lambda: sum(line["write"] for line in lines()) >= ROWS)
    answer = visitor.get("/i/demo/usage.csv?hours=24")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    written = sum(int(row["write"]) for row in rows if row["table"] == flights)
    assert written == sum(line["write"] for line in lines())
    assert all(row["hour"].endswith(":00:00Z") for row in rows)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_pages_speak_both_languages(visitor: Visitor, flights: str, language: str) -> None:
    visitor.cookies["rowtide_language"] = language
    words = {"en": ("Requests/s", "Capacity units"), "zh": ("请求/秒", "容量单元")}[language]
    assert words[0] in visitor.get(f"/i/demo/t/{flights}").text
    assert words[1] in visitor.get("/i/demo/usage").text
    del visitor.cookies["rowtide_language"]


def test_borders_of_shards_are_text_only(visitor: Visitor, store: Client) -> None:
    store.create_table("nasty", {"k": str})
    path = "/i/demo/t/nasty/shards"
    [shard] = data(visitor, f"{path}.json")["lines"]
    text = "<script>alert(1)</script>"
    assert visitor.change(f"{path}/split", {"shard": shard["shard"], "at": text}).status == 303
    page = visitor.get(path).text
    assert text not in page
    assert "&lt;script&gt;" in page
    store.delete_table("nasty")


def test_an_instance_with_many_tables_is_shown_in_parts(
    visitor: Visitor, console: RunningConsole, store: Client
) -> None:
    names = [f"many_{number:03}" for number in range(60)]
    for name in names:
        store.create_table(name, {"k": int})
    found: list[str] = []
    address = TABLES
    while address:
        page = data(visitor, address.replace("/tables", "/tables.json"))
        assert len(page["tables"]) <= 100
        found += [one["name"] for one in page["tables"]]
        address = page["next"]
    assert [name for name in found if name.startswith("many_")] == names
    for name in names:
        store.delete_table(name)
