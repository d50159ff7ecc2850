"""The lives of slots and standbys: their tables, the page that draws them, and the upkeep jobs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import cast

import pytest

from rowtide.stream.cluster.slot_place import PLACE_TRANSITIONS, PlaceEvent
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.life import (
    TRANSITIONS,
    ClaimedSlot,
    ClaimingSlot,
    ClosedSlot,
    DrainingSlot,
    LifeEvent,
    PreparingSlot,
    ServingSlot,
    SlotLife,
    SlotState,
)
from rowtide.stream.slot.standby.standby_life import STANDBY_TRANSITIONS, StandbyEvent
from rowtide.stream.slot.tasks import LifeTasks
from rowtide.stream.slot.upkeep.jobs import UpkeepJob, every, start_jobs
from tests.support.waiting import SOON_S

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/slot-life.md"
TASKS, ROWS = cast(LifeTasks, None), cast(RowStore, None)


TABLES = {
    "Slot": (TRANSITIONS, LifeEvent),
    "Standby": (STANDBY_TRANSITIONS, StandbyEvent),
    "Place": (PLACE_TRANSITIONS, PlaceEvent),
}


def rows_of(kind: str) -> list[tuple[str, str, str, str]]:
    """Return the table of a slot, a standby or a place as the page names its states."""
    table, _ = TABLES[kind]
    return [
        (
            row.state.__name__.removesuffix(kind),
            row.event.value,
            row.next_state.__name__.removesuffix(kind),
            row.done,
        )
        for row in table
    ]


def section(heading: str) -> str:
    """Return what the page has below a heading, up to the next one of that depth or above."""
    found = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    depth = heading.count("#")
    return re.split(rf"\n#{{1,{depth}}} ", found)[0]


@pytest.mark.parametrize("kind", ["Slot", "Standby"])
def test_the_page_draws_the_transitions_of_the_code(kind: str) -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): (.+)$", section(f"## {kind}"), re.MULTILINE)
    assert drawn
    assert sorted(drawn) == sorted(
        (state, after, event) for state, event, after, _ in rows_of(kind)
    )


@pytest.mark.parametrize("kind", TABLES)
def test_the_page_has_the_table_of_the_code(kind: str) -> None:
    text = section(f"### Transitions of a {kind.lower()}")
    written = re.findall(r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)
    # A row of the page may name several states.
    rows = [(state, *step) for states, *step in written[1:] for state in states.split(", ")]
    assert sorted(rows) == sorted(rows_of(kind))


@pytest.mark.parametrize("kind", TABLES)
def test_every_event_of_a_state_leads_to_one_state(kind: str) -> None:
    table, events = TABLES[kind]
    steps = [(row.state, row.event) for row in table]
    assert len(steps) == len(set(steps))
    assert {row.event for row in table} == set(events)


def test_a_slot_is_open_while_it_serves_and_drains() -> None:
    life = SlotLife()
    claimed = ClaimedSlot(TASKS, ROWS, 7)
    steps: list[tuple[LifeEvent, SlotState, bool, bool]] = [
        (LifeEvent.OPEN_ROWS, PreparingSlot(TASKS, ROWS), False, True),
        (LifeEvent.HAND_OVER, ClaimingSlot(TASKS, ROWS), False, False),
        (LifeEvent.CLAIM, claimed, False, False),
        (LifeEvent.OPEN_SHARDS, ServingSlot(TASKS, ROWS, 7), True, False),
        (LifeEvent.DRAIN, DrainingSlot(TASKS, ROWS, 7), True, False),
        (LifeEvent.CLOSE, ClosedSlot(is_foreign=False), False, False),
        (LifeEvent.LEAVE, ClosedSlot(is_foreign=True), False, True),
    ]
    for event, state, is_open, is_foreign in steps:
        life.move(event, state)
        assert life.state is state
        assert (life.opened.is_set(), life.state.is_foreign) == (is_open, is_foreign)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (LifeEvent.OPEN_SHARDS, ServingSlot(TASKS, ROWS, 7)),
        (LifeEvent.CLOSE, ClosedSlot(is_foreign=True)),
        (LifeEvent.OPEN_ROWS, ClaimedSlot(TASKS, ROWS, 7)),
    ],
)
def test_a_step_that_is_not_in_the_table_is_refused(event: LifeEvent, state: SlotState) -> None:
    life = SlotLife()
    with pytest.raises(AssertionError, match="no such transition"):
        life.move(event, state)
    assert life.state == ClosedSlot(is_foreign=True)


async def test_a_job_waits_for_its_interval_unless_it_is_due_first() -> None:
    done: list[str] = []
    turn = asyncio.Event()

    async def interval() -> None:
        await turn.wait()

    def job(name: str, *, is_due_first: bool = False) -> UpkeepJob:
        async def run() -> None:
            done.append(name)
            await asyncio.sleep(0)

        return UpkeepJob(name, interval, run, is_due_first)

    async with asyncio.TaskGroup() as tasks:
        start_jobs([job("late"), job("early", is_due_first=True)], tasks, 3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == ["early"]
        turn.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert {"late", "early"} == set(done[1:])
        started = [task for task in asyncio.all_tasks() if task.get_name().endswith("[3]")]
        assert {task.get_name() for task in started} == {"late[3]", "early[3]"}
        for task in started:
            task.cancel()


async def test_a_fixed_interval_returns_each_time() -> None:
    wait = every(0.0)
    async with asyncio.timeout(SOON_S):
        await wait()
        await wait()
