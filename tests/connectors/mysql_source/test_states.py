"""When a table whose rows can't be read is tried again."""

from __future__ import annotations

import pytest

from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.states import TableStates
from rowtide.connectors.sources.mysql.tables import MySqlTables
from tests.connectors.memory_target import MemoryTarget

TABLE = MySqlTable("shop", "a", (), (), "PRIMARY", "a", ())
OTHER = TABLE._replace(name="b")
NAME = TABLE.full_name

SCENARIOS = {
    "the first pause": ("0:fails", 10),
    "each pause is twice the one before": ("0:fails 10:fails 30:fails 70:fails", 150),
    "a try may come late": ("0:fails 100:fails", 120),
    "ten minutes at most": (
        "0:fails 10:fails 30:fails 70:fails 150:fails 310:fails 630:fails 1230:fails",
        1830,
    ),
    "after a statement about it": ("0:fails 10:fails 12:altered 13:fails", 23),
    "after all its rows were read": ("0:fails 10:fails 30:whole 40:fails", 50),
    "another table does not count": ("0:fails 10:fails 15:other", 30),
}


def _apply(states: TableStates, event: str) -> None:
    if event == "altered":
        states.forget(NAME)
    elif event == "whole":
        states.note_whole(NAME)
    else:
        states.fail(states.unreadable(OTHER if event == "other" else TABLE, "1814"))


@pytest.mark.parametrize("case", SCENARIOS)
async def test_a_table_is_tried_again(case: str) -> None:
    events, again_s = SCENARIOS[case]
    now_s = 0.0
    states = TableStates(lambda: now_s)
    for event in events.split():
        at, _, what = event.partition(":")
        now_s = float(at)
        _apply(states, what)
    found = MySqlTables({NAME: TABLE}, {})
    now_s = again_s - 0.1
    assert not await states.is_one_fit(found, MemoryTarget())
    [shown] = [state for state in states.states({}, {}) if state.table == NAME]
    assert (shown.state, "1814" in shown.reason) == ("failed", True)
    now_s = again_s
    assert await states.is_one_fit(found, MemoryTarget())


def test_a_statement_about_a_table_ends_its_pause() -> None:
    states = TableStates(lambda: 0.0)
    _apply(states, "fails")
    assert states.waiting(NAME) is not None
    _apply(states, "altered")
    assert states.waiting(NAME) is None


@pytest.mark.parametrize(("now_s", "due"), [(5, False), (10, True), (20, False), (30, True)])
def test_looks_are_due_only_where_a_table_may_be_tried(now_s: float, *, due: bool) -> None:
    clock_s = 0.0
    states = TableStates(lambda: clock_s)
    _apply(states, "fails")
    if now_s > 10:
        clock_s = 10.0
        _apply(states, "fails")
    clock_s = now_s
    assert states.are_due is due
