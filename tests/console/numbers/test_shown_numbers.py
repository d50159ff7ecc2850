"""Events of a dashboard: what a viewer gets, whatever it has missed."""

from __future__ import annotations

import json
from typing import Any

from rowtide.console.numbers.shown_numbers import ShownNumbers, layout_of


def document(stamp: int = 1, title: str = "Cities", **rows: list[list[object]]) -> dict[str, Any]:
    column = {"name": "n", "type": "BIGINT", "is_group": False, "is_approximate": False}
    panel = {"title": title, "chart": "table", "unit": None, "columns": [column], "fault": ""}
    return {
        "is_former": False,
        "positions": {"s": {"sequence": stamp, "stamp": stamp}},
        "panels": {name: {**panel, "rows": of} for name, of in rows.items()},
    }


def panels_after(shown: ShownNumbers, event_id: str) -> dict[str, Any]:
    content = json.loads(shown.content_after(shown.version_of(event_id)))
    return {name: panel["rows"] for name, panel in content["panels"].items()}


def test_a_viewer_gets_the_panels_that_changed_since_its_last_event() -> None:
    shown = ShownNumbers()
    assert shown.show(document(1, a=[[1]], b=[[1]]), None)
    first = shown.event_id
    assert shown.show(document(2, a=[[2]], b=[[1]]), None)
    second = shown.event_id
    assert shown.show(document(3, a=[[2]], b=[[3]]), None)
    assert panels_after(shown, first) == {"a": [[2]], "b": [[3]]}
    assert panels_after(shown, second) == {"b": [[3]]}
    assert panels_after(shown, shown.event_id) == {}


def test_each_event_has_the_positions() -> None:
    shown = ShownNumbers()
    shown.show(document(1, a=[[1]]), None)
    shown.show(document(2, a=[[1]]), None)
    content = json.loads(shown.content_after(shown.version_of(shown.event_id)))
    assert content["positions"] == {"s": {"sequence": 2, "stamp": 2}}


def test_the_same_numbers_are_no_event() -> None:
    shown = ShownNumbers()
    shown.show(document(1, a=[[1]]), None)
    before = shown.event_id
    assert not shown.show(document(1, a=[[1]]), None)
    assert shown.event_id == before


def test_an_unknown_id_gets_everything() -> None:
    shown, other = ShownNumbers(), ShownNumbers()
    shown.show(document(1, a=[[1]]), None)
    other.show(document(1, a=[[1]]), None)
    for event_id in ("", "x", "-", other.event_id, f"{shown.event_id}x", f"{shown.event_id}²"):
        assert panels_after(shown, event_id) == {"a": [[1]]}, event_id


def test_an_id_from_the_future_is_no_later_than_now() -> None:
    shown = ShownNumbers()
    shown.show(document(1, a=[[1]]), None)
    epoch = shown.event_id.partition("-")[0]
    assert shown.version_of(f"{epoch}-{'9' * 5000}") == shown.version


def test_a_panel_that_returns_is_sent_again() -> None:
    shown = ShownNumbers()
    shown.show(document(1, a=[[1]]), None)
    shown.show(document(2), None)
    gone = shown.event_id
    shown.show(document(3, a=[[1]]), None)
    assert panels_after(shown, gone) == {"a": [[1]]}


def test_another_title_is_another_layout_and_other_rows_are_not() -> None:
    assert layout_of(document(1, a=[[1]])) == layout_of(document(2, a=[[2], [3]]))
    assert layout_of(document(1, a=[[1]])) != layout_of(document(1, "Towns", a=[[1]]))
    assert layout_of(document(1, a=[[1]])) != layout_of(document(1, b=[[1]]))
