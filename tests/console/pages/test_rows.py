"""Rows are browsed page by page, found, shown exactly, and changed only as they were shown."""

from __future__ import annotations

import html
import re
import time
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from rowtide.client import Client, Versioned
from tests.support.consoles import RunningConsole, Visitor

pytestmark = pytest.mark.system

ROWS = "/i/demo/t/orders/rows"
ROW = "/i/demo/t/orders/row"
PEOPLE = ("ada", "bob", "cleo")
COUNT = 120


@pytest.fixture(scope="module", autouse=True)
def orders(store: Client) -> None:
    """120 rows of three customers, and some that are hard to show."""
    store.create_table("orders", {"customer": str, "number": int}, stream_hours=24, max_versions=5)
    for number in range(COUNT):
        row = key_of(PEOPLE[number % 3], number) | {"total": number * 0.5}
        store.put("orders", row | {"state": ("open", "sent")[number % 2], "card": "4111"})


def key_of(customer: str, number: int = 1) -> dict[str, Any]:
    return {"customer": customer, "number": number}


def read(visitor: Visitor, path: str = ROWS, **fields: Any) -> Any:
    answer = visitor.get(f"{path}.json?{urlencode(fields)}")
    assert answer.status == 200, answer.text
    return answer.document


def keys(page: Any) -> list[tuple[str, int]]:
    return [(row["values"][0]["text"], int(row["values"][1]["text"])) for row in page["rows"]]


def walk(visitor: Visitor, **fields: Any) -> list[tuple[str, int]]:
    """Return the keys of all pages, one after the other."""
    page = read(visitor, **fields)
    found = keys(page)
    while page["next"]:
        page = visitor.get(page["next"]).document
        found += keys(page)
    return found


ALL = sorted((PEOPLE[number % 3], number) for number in range(COUNT))


@pytest.mark.parametrize("count", [1, 7, 50, 100])
@pytest.mark.parametrize("reverse", ["", "1"])
def test_pages_have_every_row_once_and_in_order(visitor: Visitor, count: int, reverse: str) -> None:
    if count > 1 or not reverse:
        expected = ALL[::-1] if reverse else ALL
        assert walk(visitor, count=count, reverse=reverse) == expected


def test_rows_whose_key_begins_so(visitor: Visitor) -> None:
    assert walk(visitor, key1="bob", count=9) == [key for key in ALL if key[0] == "bob"]


def test_a_page_reads_no_more_rows_than_it_shows(visitor: Visitor) -> None:
    for fields in ({}, {"reverse": "1"}, {"from1": "bob", "from2": "61"}, {"key1": "cleo"}):
        page = read(visitor, count=10, **fields)
        assert (len(page["rows"]), page["examined"]) == (10, 10)
        assert visitor.get(page["next"]).document["examined"] == 10


RANGES: list[tuple[dict[str, object], Any]] = [
    ({"from1": "bob"}, lambda key: key[0] >= "bob"),
    ({"to1": "bob"}, lambda key: key[0] < "bob"),
    (
        {"from1": "ada", "from2": 30, "to1": "bob", "to2": 61},
        lambda k: ("ada", 30) <= k < ("bob", 61),
    ),
    ({"from1": "bob", "to1": "cleo"}, lambda key: "bob" <= key[0] < "cleo"),
    ({"from1": "bob", "from2": 40}, lambda key: key >= ("bob", 40)),
]


@pytest.mark.parametrize("reverse", ["", "1"])
@pytest.mark.parametrize(("fields", "is_in"), RANGES, ids=[str(fields) for fields, _ in RANGES])
def test_a_range_includes_its_start_and_excludes_its_end(
    visitor: Visitor, fields: dict[str, object], is_in: Any, reverse: str
) -> None:
    expected = [key for key in ALL if is_in(key)]
    found = walk(visitor, count=11, reverse=reverse, **fields)
    assert found == (expected[::-1] if reverse else expected)


def test_a_filter_is_that_of_connectors_and_pages_go_on(visitor: Visitor) -> None:
    found = walk(visitor, filter="state = 'open' and (total >= 20 or number = 4)", count=7)
    assert found == [key for key in ALL if key[1] % 2 == 0 and (key[1] * 0.5 >= 20 or key[1] == 4)]


def test_a_filter_that_matches_nothing_shows_how_much_was_read(visitor: Visitor) -> None:
    page = read(visitor, filter="state = 'lost'")
    assert (page["rows"], page["examined"], page["next"]) == ([], COUNT, "")


def test_a_whole_key_leads_to_its_row(visitor: Visitor) -> None:
    answer = visitor.get(f"{ROWS}?key1=ada&key2=3")
    assert (answer.status, answer.location) == (303, f"{ROW}?key1=ada&key2=3")


REFUSED = [
    ({"key2": "1"}, "customer"),
    ({"key1": "ada", "key2": "x"}, "integer"),
    ({"key1": "ada", "from1": "bob"}, "range"),
    ({"filter": "state ="}, "state ="),
    ({"filter": "x" * 5000}, "5000"),
    ({"filter": "card = '4111'"}, "card"),
    ({"columns": "card"}, "card"),
    ({"columns": ",".join(map(str, range(40)))}, "40"),
    ({"count": "1000"}, "100"),
    ({"count": "-1"}, "100"),
    ({"at": "%%%"}, "damaged"),
    ({"key1": '"open'}, "JSON"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda one: str(one)[:30])
def test_what_is_asked_wrongly_is_answered_with_words(
    visitor: Visitor, fields: dict[str, str], words: str
) -> None:
    answer = visitor.get(f"{ROWS}?{urlencode(fields)}")
    assert answer.status == 400
    assert words in html.unescape(answer.text)
    assert "Traceback" not in answer.text


def test_a_position_that_is_cut_anywhere_is_an_error_in_words(visitor: Visitor) -> None:
    place = re.search(r"at=([\w-]+)", read(visitor, count=5)["next"])
    assert place
    for end in range(1, len(place[1])):
        answer = visitor.get(f"{ROWS}?at={place[1][:end]}")
        assert answer.status == 400, (end, answer.status)
        assert "Traceback" not in answer.text


def test_a_table_that_is_not_there_is_named(visitor: Visitor) -> None:
    for page in ("rows", "row?key1=a", "live"):
        answer = visitor.get(f"/i/demo/t/nothing/{page}")
        assert answer.status == 404
        assert "Traceback" not in answer.text


HARD: dict[str, Any] = {
    "text": "line one\nline two",
    "edges": "\r\n\x00\u202e\ufeff",
    "script": "<script>alert(1)</script>\" ' & {{ 7 * 7 }}",
    "int": -(2**63),
    "double": 0.1,
    "whole": 3.0,
    "bool": True,
    "bytes": bytes(range(256)),
    "empty": "",
}


def form_of(page: str) -> dict[str, str]:
    """Return the fields of the row's form as a browser would send them, unchanged."""
    fields: dict[str, str] = {}
    body = page[page.index('<form method="post" action="/i/') :]
    for tag in re.findall(r"<input[^>]*>", body.partition("</form>")[0]):
        if 'type="checkbox"' not in tag:
            name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
            assert name
            fields[name[1]] = html.unescape(value[1]) if value else ""
    for name, body_text in re.findall(r'<textarea name="(\w+)".*?>(.*?)</textarea>', body, re.S):
        fields[name] = html.unescape(body_text).replace("\r\n", "\n").replace("\n", "\r\n")
    for name, options in re.findall(r'<select name="(\w+)".*?>(.*?)</select>', body, re.S):
        chosen = re.search(r'value="(\w+)" selected', options) or re.search(
            r'value="(\w+)"', options
        )
        assert chosen
        fields[name] = chosen[1]
    return fields


def open_row(visitor: Visitor, *key: object) -> tuple[str, dict[str, str]]:
    fields = {f"key{at + 1}": str(value) for at, value in enumerate(key)}
    answer = visitor.get(f"{ROW}?{urlencode(fields)}")
    assert answer.status == 200, answer.text
    return answer.text, form_of(answer.text)


def number_of(form: dict[str, str], name: str) -> str:
    return next(
        field.removeprefix("name")
        for field, value in form.items()
        if value == name and field != "name0"
    )


def test_a_form_that_is_sent_back_as_it_is_changes_nothing(store: Client, visitor: Visitor) -> None:
    key = key_of("hard")
    store.put("orders", key | HARD)
    before = store.get_versions("orders", key)
    page, form = open_row(visitor, "hard", 1)
    assert "<script>alert" not in page
    assert "49" not in form["value" + number_of(form, "script")]
    assert visitor.post(ROW, form).status == 303
    assert store.get_versions("orders", key) == before


@pytest.mark.parametrize("name", HARD)
def test_each_type_is_edited_exactly(store: Client, visitor: Visitor, name: str) -> None:
    key = key_of("edit")
    store.put("orders", key | {"other": 1})
    store.put("orders", key_of("edit", 2) | HARD)
    _, source = open_row(visitor, "edit", 2)
    _, form = open_row(visitor, "edit", 1)
    number = number_of(source, name)
    form |= {"name0": name, "kind0": source[f"kind{number}"], "value0": source[f"value{number}"]}
    assert visitor.post(ROW, form).status == 303
    found = store.get("orders", key)
    assert found is not None
    assert (type(found[name]), found[name]) == (type(HARD[name]), HARD[name])
    assert found["other"] == 1


def test_a_change_is_refused_if_the_column_has_changed_since(
    store: Client, visitor: Visitor
) -> None:
    key = key_of("race")
    store.put("orders", key | {"a": 1, "b": 1})
    _, form = open_row(visitor, "race", 1)
    store.update("orders", key | {"a": 2})
    form["value" + number_of(form, "a")] = "3"
    answer = visitor.post(ROW, form)
    assert answer.status == 409
    assert store.get("orders", key) == key | {"a": 2, "b": 1}
    # Another column than the one that changed is no conflict.
    form["value" + number_of(form, "a")] = "1"
    form["value" + number_of(form, "b")] = "7"
    assert visitor.post(ROW, form).status == 303
    assert store.get("orders", key) == key | {"a": 2, "b": 7}


def test_a_row_is_deleted_only_as_it_was_shown(store: Client, visitor: Visitor) -> None:
    key = key_of("end")
    store.put("orders", key | {"a": 1, "b": 1.0})
    _, form = open_row(visitor, "end", 1)
    store.update("orders", key | {"b": 1})
    assert visitor.post(ROW, form | {"action": "delete"}).status == 409
    assert store.get("orders", key) is not None
    _, form = open_row(visitor, "end", 1)
    answer = visitor.post(ROW, form | {"action": "delete"})
    assert (answer.status, answer.location) == (303, ROWS)
    assert store.get("orders", key) is None


def test_a_column_is_deleted_and_a_row_is_created(store: Client, visitor: Visitor) -> None:
    page, form = open_row(visitor, "new", 1)
    assert "There is no row" in page
    form |= {"name0": "a", "kind0": "int", "value0": "5"}
    assert visitor.post(ROW, form).status == 303
    assert store.get("orders", key_of("new")) == {
        "customer": "new",
        "number": 1,
        "a": 5,
    }
    # The form is of a row that was not there; it is now.
    assert visitor.post(ROW, form | {"value0": "6"}).status == 409
    _, form = open_row(visitor, "new", 1)
    form |= {"delete" + number_of(form, "a"): "1", "name0": "b", "kind0": "bool", "value0": "true"}
    assert visitor.post(ROW, form).status == 303
    assert store.get("orders", key_of("new")) == {
        "customer": "new",
        "number": 1,
        "b": True,
    }


def test_a_wrong_value_is_answered_with_words_and_nothing_is_written(
    store: Client, visitor: Visitor
) -> None:
    key = key_of("wrong")
    store.put("orders", key | {"a": 1})
    _, form = open_row(visitor, "wrong", 1)
    number = number_of(form, "a")
    for kind, value in (("int", "x"), ("double", "x"), ("base64", "?"), ("", "x"), ("json", "[")):
        answer = visitor.post(ROW, form | {f"kind{number}": kind, f"value{number}": value})
        assert answer.status == 400, (kind, answer.text)
    for shown in ("", "[", "[1]", '{"a": 1}', '{"a": "x"}'):
        answer = visitor.post(ROW, form | {"shown": shown, f"value{number}": "2"})
        assert answer.status in (400, 409), (shown, answer.text)
    assert store.get("orders", key) == key | {"a": 1}


def test_versions_are_shown_the_newest_first(store: Client, visitor: Visitor) -> None:
    key = key_of("versions")
    now_ms = time.time_ns() // 1_000_000
    for number in (1, 3, 2):
        store.update("orders", key | {"a": Versioned(number, now_ms + number)})
    page = read(visitor, ROW, key1="versions", key2=1, versions="a")
    assert [one["version_ms"] - now_ms for one in page["versions"]] == [3, 2, 1]
    assert [one["value"]["text"] for one in page["versions"]] == ["3", "2", "1"]


def test_a_wide_row_is_shown_in_pages_of_columns(store: Client, visitor: Visitor) -> None:
    key = key_of("wide")
    names = [f"c{number:04}" for number in range(500)]
    store.put("orders", key | dict.fromkeys(names, 1))
    page = read(visitor, ROW, key1="wide", key2=1)
    found = [column["name"] for column in page["columns"]]
    while page["next"]:
        page = visitor.get(page["next"], {"Accept": "application/json"}).document
        found += [column["name"] for column in page["columns"]]
    assert found == names
    listed = read(visitor, key1="wide")
    assert listed["rows"][0]["has_more"]
    assert len(listed["columns"]) == 12


def test_a_value_of_two_mebibytes_is_cut_in_pages_and_stays_whole(
    store: Client, visitor: Visitor
) -> None:
    key = key_of("large")
    value = "é" * (1024 * 1024)
    store.put("orders", key | {"big": value, "small": 1})
    page, form = open_row(visitor, "large", 1)
    assert len(page) < 100_000
    form["value" + number_of(form, "small")] = "2"
    assert visitor.post(ROW, form).status == 303
    assert store.get("orders", key) == key | {"big": value, "small": 2}
    alone = visitor.get(f"{ROW}?key1=large&key2=1&column=big")
    assert alone.status == 200
    assert "Delete this row" not in alone.text


def test_a_hidden_column_is_in_no_page(console: RunningConsole, visitor: Visitor) -> None:
    for path in (
        f"{ROWS}",
        f"{ROWS}.json",
        f"{ROWS}?filter=state+%3D+%27open%27",
        f"{ROW}?key1=ada&key2=0",
        f"{ROW}.json?key1=ada&key2=0",
    ):
        answer = visitor.get(path)
        assert answer.status == 200
        assert "4111" not in answer.text
        assert "card" not in answer.text.lower().replace("discard", "")
    for query in ("versions=card", "column=card"):
        assert visitor.get(f"{ROW}?key1=ada&key2=0&{query}").status == 400
    _, form = open_row(visitor, "ada", 0)
    form |= {"name0": "card", "kind0": "text", "value0": "x"}
    assert visitor.post(ROW, form).status == 400


def test_a_read_only_user_sees_no_form_and_changes_nothing(
    console: RunningConsole, store: Client
) -> None:
    reader = console.log_in(read_only=True)
    page = reader.get(f"{ROW}?key1=ada&key2=3").text
    assert f'<form method="post" action="{ROW}"' not in page
    assert "<textarea" not in page
    before = store.get("orders", key_of("ada", 3))
    forged = {"csrf": reader.csrf(), "key1": "ada", "key2": "3", "was_there": "1", "shown": "{}"}
    for more in ({"name0": "x", "kind0": "int", "value0": "1"}, {"action": "delete"}):
        assert reader.post(ROW, forged | more).status == 403
    assert store.get("orders", key_of("ada", 3)) == before


def test_keys_of_every_type_are_reached(store: Client, visitor: Visitor) -> None:
    store.create_table("keyed", {"a": bytes, "b": int, "c": str})
    hard = [b"\x00\xff", b"a"], [-(2**63), 2**63 - 1], ["x", "", ' "', "a&b=c#d?", "写", "\x00\n"]
    rows = [(a, b, c) for a in hard[0] for b in hard[1] for c in hard[2]]
    for a, b, c in rows:
        store.put("keyed", {"a": a, "b": b, "c": c, "v": c})
    page = visitor.get("/i/demo/t/keyed/rows.json").document
    assert len(page["rows"]) == len(rows)
    for row in page["rows"]:
        answer = visitor.get(row["address"].replace("/row?", "/row.json?"))
        assert answer.status == 200, (row["address"], answer.text)
        assert answer.document["is_there"], row["address"]
    assert visitor.get(f"/i/demo/t/keyed/rows.json?key1=00ff&key2={2**63 - 1}").document["rows"]


def test_the_live_page_of_a_table_without_a_stream_says_how_to_enable_it(
    store: Client, visitor: Visitor
) -> None:
    store.create_table("still", {"id": int})
    answer = visitor.get("/i/demo/t/still/live")
    assert answer.status == 200
    assert "stream_hours=24" in html.unescape(answer.text)


def test_the_live_page_keeps_filter_and_position_in_its_address(visitor: Visitor) -> None:
    asked = {"filter": "state = 'open'", "after": "TOKEN"}
    page = read(visitor, "/i/demo/t/orders/live", **asked)
    assert page["after"] == "TOKEN"
    assert quote("state = 'open'", safe="").replace("%20", "+") in page["feed"]
