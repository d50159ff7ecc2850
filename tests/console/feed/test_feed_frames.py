"""The bytes that viewers get: values, events, and messages of a WebSocket."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.runtime.row_filter import parse_test
from rowtide.console.feed.feed_lens import EVERY, SAMPLED, FeedLens, FrameWindow, LensKey
from rowtide.console.feed.feed_wire import NDJSON, PLAIN_SSE, SSE, WEBSOCKET, WebSocketEncoding
from rowtide.console.feed.frame_pace import find_pause_s
from rowtide.console.feed.page_ring import FeedPage, FeedRecord, PageRing
from rowtide.console.feed.record_text import change_text, filter_row, narrow_text, parse_values
from rowtide.core.records.body import Kept
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    UPDATE,
    Change,
    ChangeParts,
    ChangeTable,
    Kind,
)
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell
from rowtide.core.values.variant import Scalar

TABLE = ChangeTable("t", (b"k",))
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
)


def change(
    kind: Kind = PUT_ROW,
    columns: dict[str, Scalar] | None = None,
    *,
    removed: tuple[str, ...] = (),
    before: dict[str, Scalar] | None = None,
    kept: Kept | None = None,
) -> Change:
    """Return a change of the row ``a``."""
    cells = [Cell(n.encode(), PUT, variant.encode(v), 1, 0) for n, v in (columns or {}).items()]
    cells += [Cell(name.encode(), DELETE_ALL, b"", 1, 0) for name in removed]
    old = None
    if before is not None:
        old = [Cell(n.encode(), PUT, variant.encode(v), 1, 0) for n, v in before.items()]
    parts = ChangeParts([variant.encode("a")], cells, old, kept)
    return Change.of(kind, TABLE, "s1", 5, parts)


def record(text: bytes, sequence: int = 0) -> FeedRecord:
    """Return a record."""
    return FeedRecord(sequence, variant.encode("a"), text)


def same(left: Any, right: Any) -> bool:
    """True if two values are equal and of one type; NaN equals itself."""
    if isinstance(left, float) and isinstance(right, float):
        return math.copysign(1, left) == math.copysign(1, right) and (
            left == right or (math.isnan(left) and math.isnan(right))
        )
    return type(left) is type(right) and left == right


@given(value=VALUES)
def test_a_value_keeps_type_and_digits_in_a_browser(value: Scalar) -> None:
    text = change_text(change(columns={"c": value}), frozenset())
    # A browser reads each number as a double, and prints it without a fraction if it has none.
    numbers = json.loads(text, parse_int=float)["columns"]
    as_browser = {
        name: int(found) if isinstance(found, float) and found.is_integer() else found
        for name, found in numbers.items()
    }
    back = parse_values(as_browser)["c"]
    # The sign of NaN is lost: no language shows it.
    assert same(back, value) or (isinstance(value, float) and math.isnan(value))


CORPUS = [
    "<script>alert(1)</script>",
    "\u2028\u2029",
    "\x00\r\n",
    '"\\',
    "data: x\n\nid: 1",
    "\U0001f600",
]


@pytest.mark.parametrize("text", CORPUS)
def test_no_value_ends_a_line_or_an_event(text: str) -> None:
    content = change_text(change(columns={text: text}), frozenset())
    frame = PLAIN_SSE.encode("records", "T", content)
    lines = frame.split(b"\n")
    assert lines[0] == b"id: T"
    assert lines[2:] == [b"", b""]
    assert json.loads(lines[1].removeprefix(b"data: "))["columns"] == {text: text}


def test_hidden_columns_are_in_no_text() -> None:
    kept = Kept(True, [b"pin"], [])
    before: dict[str, Scalar] = {"card": "4000"}
    whole = change(UPDATE, {"card": "4111", "n": 1}, removed=("pin",), before=before, kept=kept)
    text = change_text(whole, frozenset({"card", "pin", "k"}))
    document = json.loads(text)
    assert document["columns"] == {"n": 1}
    assert document["removed"] == []
    assert (document["before"], document["after"], document["existed"]) == ({}, {}, True)
    assert document["key"] == {"k": None}
    assert filter_row(text) == {"n": 1}


SCENARIOS: list[tuple[Change, dict[str, Scalar]]] = [
    (change(PUT_ROW, {"n": 1}, before={"n": 0, "m": 2}), {"k": "a", "n": 1}),
    (change(UPDATE, {"n": 1}, before={"n": 0, "m": 2}), {"k": "a", "n": 1, "m": 2}),
    (change(UPDATE, {}, removed=("m",), before={"n": 0, "m": 2}), {"k": "a", "n": 0}),
    (change(DELETE, before={"n": 0}), {"k": "a", "n": 0}),
    (change(DELETE), {"k": "a"}),
]


@pytest.mark.parametrize(("one", "row"), SCENARIOS)
def test_a_filter_sees_the_row_as_far_as_the_stream_knows_it(
    one: Change, row: dict[str, Scalar]
) -> None:
    assert filter_row(change_text(one, frozenset())) == row


def test_an_update_of_other_columns_is_no_change() -> None:
    update = change_text(change(UPDATE, {"n": 1}), frozenset())
    assert narrow_text(update, {"m"}) is None
    put = narrow_text(change_text(change(PUT_ROW, {"n": 1}), frozenset()), {"m"})
    assert put is not None
    assert json.loads(put)["columns"] == {}


def test_a_lens_selects_by_key_filter_and_columns() -> None:
    text = change_text(change(columns={"n": 3, "m": 1}), frozenset())
    test = parse_test("n > 2", "filter")
    assert FeedLens(LensKey(filter=test)).select(record(text)) == text
    assert FeedLens(LensKey(filter=parse_test("n > 3", "filter"))).select(record(text)) is None
    assert FeedLens(LensKey(partition_key=variant.encode("b"))).select(record(text)) is None
    narrowed = FeedLens(LensKey(columns=frozenset({"m"}))).select(record(text))
    assert narrowed is not None
    assert json.loads(narrowed)["columns"] == {"m": 1}


def test_a_sampled_window_keeps_the_newest_and_counts_the_others() -> None:
    window = FrameWindow(SAMPLED)
    window.add([b"%d" % number for number in range(50)])
    frame = json.loads(window.take())
    assert frame == {"records": list(range(30, 50)), "left_out": 30}
    assert json.loads(window.take()) == {"records": [], "left_out": 0}


def test_a_text_is_made_only_for_the_records_of_a_frame() -> None:
    records = [FeedRecord.of(change(columns={"n": number}), frozenset()) for number in range(50)]
    page = FeedPage("s1", 0, 50, records, 5)
    estimated = page.measure()
    window = FrameWindow(SAMPLED)
    FeedLens(LensKey(SAMPLED)).fill(window, page.records)
    frame = json.loads(window.take())
    assert [one["columns"]["n"] for one in frame["records"]] == list(range(30, 50))
    assert frame["left_out"] == 30
    # What was estimated before is about what the texts need.
    assert 0.5 < page.measure() / estimated < 1.5


def test_a_page_finds_the_records_of_a_key() -> None:
    keys = [b"a", b"b", b"a", b"c", b"a"]
    page = FeedPage("s1", 0, 5, [FeedRecord(at, key, b"{}") for at, key in enumerate(keys)], 5)
    for begin in range(5):
        for key in (b"a", b"b", b"d"):
            found = [record.sequence for record in page.slice_records(begin, 5, key)]
            assert found == [at for at in range(begin, 5) if keys[at] == key]


@pytest.mark.parametrize("existed", [True, False])
def test_the_text_of_a_change_has_original_columns_before_and_after(existed: bool) -> None:
    kept = Kept(existed, [b"m"], [Cell(b"o", DELETE_ALL, b"", None, 0)])
    one = change(UPDATE, {"n": 1, "o": 2, "p": 3}, before={"n": 0}, kept=kept)
    text = change_text(one, frozenset())
    document = json.loads(text)
    assert (document["before"], document["after"]) == ({"n": 0}, {"n": 1})
    assert document["existed"] is existed
    narrow = narrow_text(text, {"p"})
    assert narrow is not None
    assert json.loads(narrow)["after"] == {}


def test_the_text_of_a_change_has_each_part() -> None:
    cells = [
        Cell(b"n", PUT, variant.encode(1), 1, 0),
        Cell(b"n", PUT, variant.encode(2), 2, 0),
        Cell(b"gone", DELETE_ALL, b"", 1, 0),
        Cell('\u00e4"'.encode(), PUT, variant.encode(b"\x00\xff"), 1, 0),
        Cell(b"yes", PUT, variant.encode(True), 1, 0),
    ]
    before = [Cell(b"n", PUT, variant.encode(0.5), 1, 0)]
    parts = ChangeParts([variant.encode("a"), variant.encode(-(2**60))], cells, before)
    one = Change.of(UPDATE, ChangeTable("t", (b"k", b"l")), 's"1', 7, parts)
    assert json.loads(change_text(one, frozenset())) == {
        "kind": "update",
        "key": {"k": "a", "l": {"int": str(-(2**60))}},
        "columns": {"n": 2, '\u00e4"': {"base64": "AP8="}, "yes": True},
        "removed": ["gone"],
        "before": {"n": 0.5},
        "after": None,
        "existed": None,
        "stamp": 7,
        "sequence": -1,
        "shard": 's"1',
    }


PACES = """
mode     records viewers  pause_ms
sampled        1       1        20
sampled        4       1        20
sampled       10       1        50
sampled       20       1       100
sampled        1     500       100
sampled        1     200        40
every          1       1        15
every       5000       1        15
every          9      50        50
every          1    2000       100
"""


@pytest.mark.parametrize("line", PACES.splitlines()[2:])
def test_frames_are_fewer_where_they_are_large_or_many(line: str) -> None:
    mode, records, viewers, pause_ms = line.split()
    assert mode in ("every", "sampled")
    found_s = find_pause_s(
        EVERY if mode == "every" else SAMPLED, records=int(records), viewers=int(viewers)
    )
    assert found_s * 1000 == pytest.approx(int(pause_ms))


@pytest.mark.parametrize("length", [0, 100, 125, 126, 65535, 65536, 70_000])
def test_a_websocket_message_has_its_length(length: int) -> None:
    frame = WEBSOCKET.encode("records", "T", b'"%b"' % (b"x" * length))
    assert frame[0] == 0x81
    short = frame[1]
    size, at = short, 2
    if short == 126:
        size, at = int.from_bytes(frame[2:4], "big"), 4
    elif short == 127:
        size, at = int.from_bytes(frame[2:10], "big"), 10
    assert len(frame) == at + size
    assert json.loads(frame[at:]) == {"event": "records", "id": "T", "data": "x" * length}


def test_each_form_has_the_same_event() -> None:
    assert SSE.encode("ready", "T", b"{}") == b"1d\r\nevent: ready\nid: T\ndata: {}\n\n\r\n"
    assert PLAIN_SSE.encode("position", "T", b"") == b"id: T\n\n"
    line = b'{"event":"position","id":"T"}\n'
    assert NDJSON.encode("position", "T", b"") == b"%x\r\n%b\r\n" % (len(line), line)
    message = WebSocketEncoding(b'"f"').encode("end", "", b"1")
    assert message[2:] == b'{"feed":"f","event":"end","data":1}'


def test_the_ring_drops_the_oldest_pages() -> None:
    ring = PageRing(5000)
    for number in range(100):
        page = FeedPage("s1", number, number + 1, [record(b"x" * 100, number)], number)
        ring.add(page)
    assert ring.size <= 5000
    assert ring.find("s1", 0) is None
    found = ring.find("s1", 99)
    assert found is not None
    assert [one.sequence for one in found.slice_records(99, 100)] == [99]
    assert ring.find("s1", 100) is None
    ring.add(FeedPage("s1", 100, 105, [], 105))
    ring.add(FeedPage("s1", 105, 105, [], 105, has_ended=True))
    last = ring.find("s1", 105)
    assert last is not None
    assert (last.end, last.has_ended) == (105, True)
