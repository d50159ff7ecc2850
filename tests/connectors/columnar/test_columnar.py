"""The parts that the analytics sinks share: floors, columns, what people see, common commits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.floors import Floor, Floors
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.columnar.gathering import Gathering, Pace
from rowtide.connectors.sinks.columnar.layout import Layout, first_come
from rowtide.connectors.sinks.columnar.presentation import (
    EXACT_MAX,
    choose_presentations,
    find_mixed_numbers,
    inexact,
)
from rowtide.connectors.sinks.columnar.settling import restamp_rows
from rowtide.core.values import schema
from rowtide.core.values.schema import KeyColumn

SHAPE = TableShape("t", (KeyColumn("Id", schema.STRING),))
BORDERS = [bytes([number]) for number in range(1, 8)]

FLOORS = st.lists(
    st.builds(
        lambda ends, unbounded, stamp: Floor(min(ends), b"" if unbounded else max(ends), stamp),
        st.tuples(st.sampled_from([b"", *BORDERS]), st.sampled_from(BORDERS)).filter(
            lambda ends: ends[0] != ends[1]
        ),
        st.booleans(),
        st.integers(0, 9),
    ),
    max_size=8,
)


@given(FLOORS, FLOORS)
def test_the_highest_floor_counts_at_each_key(some: list[Floor], more: list[Floor]) -> None:
    floors = Floors(some).merge(more)
    for key in [b"", *BORDERS, b"\x03\x00", b"\xff"]:
        over = [f.stamp for f in some + more if f.begin <= key and (not f.end or key < f.end)]
        assert floors.at(key) == max(over, default=-1)


@given(FLOORS)
def test_a_hidden_floor_may_be_forgotten(some: list[Floor]) -> None:
    floors = Floors(some)
    kept = Floors([floor for floor in some if not floors.hides(floor)])
    for key in [b"", *BORDERS, b"\x03\x00", b"\xff"]:
        assert kept.at(key) == floors.at(key)


NAMED = """
attribute   type   column
total       int    total
total       str    total__text
Total       int    Total__integer
total       float  total__double
id          str    id__text
total__text str    total__text__text
total__text int    total__text__integer
_own        bytes  _own__binary
TOTAL       int    TOTAL__integer_2
"""


def test_each_kind_of_an_attribute_has_a_column_of_its_own() -> None:
    layout = Layout(SHAPE, ["_own"], first_come(str))
    types = {"int": int, "str": str, "float": float, "bytes": bytes}
    for line in NAMED.strip().splitlines()[1:]:
        name, kind, place = line.split()
        assert layout.add((name, types[kind])).place == place
    assert layout.keys == ("Id",)


SHOWN = """
kinds                  large  form
integer                no     plain
integer double         no     double
integer double         yes    text
integer text           no     text
double boolean         no     text
integer double binary  no     text
"""


def test_people_see_one_column_that_says_what_was_written() -> None:
    types = {"integer": int, "double": float, "boolean": bool, "text": str, "binary": bytes}
    for line in SHOWN.strip().splitlines()[1:]:
        *kinds, large, form = line.split()
        layout = Layout(SHAPE, [], first_come(str))
        for kind in kinds:
            layout.add(("v", types[kind]))
        (attribute,) = choose_presentations(layout, {"v"} if large == "yes" else set())
        assert (attribute.name, attribute.form) == ("v", form), line
        numbers = set(kinds) == {"integer", "double"}
        assert [c.name for c in find_mixed_numbers(layout)] == (["v"] if numbers else [])


def test_an_integer_is_inexact_where_doubles_skip_some() -> None:
    for value, found in [(EXACT_MAX, set()), (-EXACT_MAX, set()), (EXACT_MAX + 1, {"v"})]:
        assert inexact({("v", int): [None, value]}, ["v", "w"]) == found
        assert float(value) == value or found


def batch(key: str) -> SinkBatch:
    row = SinkRow((("Id", key),), key.encode(), 1, {}, "put")
    return SinkBatch("t", key, [row])


async def test_batches_that_wait_are_committed_together() -> None:
    commits: list[list[str]] = []
    free, began = asyncio.Event(), asyncio.Event()

    async def commit(batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        commits.append([one.shard_id for one in batches])
        began.set()
        await free.wait()
        return [Refused(row, "no") for one in batches for row in one if row.key_bytes == b"c"]

    gathering = Gathering(commit)
    async with asyncio.TaskGroup() as tasks:
        applied = [tasks.create_task(gathering.apply(batch(name))) for name in "abcd"]
        await began.wait()
        free.set()
    assert commits == [["a"], ["b", "c", "d"]]
    assert [len(task.result()) for task in applied] == [0, 0, 1, 0]
    await gathering.apply(batch("e"))
    assert commits[2:] == [["e"]]


async def test_the_very_row_is_refused_that_was_of_several_of_its_key() -> None:
    """It was the last one of the key, which was written; the other was neither nor parked."""
    rows = [SinkRow((("Id", "a"),), b"a", stamp, {}, "put") for stamp in (1, 2, 3)]
    page = SinkBatch("t", "s", rows[:1], (b"", b""), 9)

    async def commit(batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        return [Refused(row, "no") for row in restamp_rows(batches) if row.stamp in (1, 9)]

    gathering = Gathering(commit)
    assert await gathering.apply(SinkBatch("t", "s", rows)) == [Refused(rows[0], "no")]
    assert await gathering.apply(page) == [Refused(rows[0], "no")]


async def test_a_commit_that_fails_is_told_to_who_made_it_and_others_try_again() -> None:
    commits: list[list[str]] = []

    async def commit(batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        commits.append([one.shard_id for one in batches])
        await asyncio.sleep(0)
        if len(commits) == 2:
            raise ConnectionError("gone")
        return []

    gathering = Gathering(commit)

    async def apply(name: str) -> bool:
        try:
            await gathering.apply(batch(name))
        except ConnectionError:
            return False
        return True

    async with asyncio.TaskGroup() as tasks:
        applied = [tasks.create_task(apply(name)) for name in "abc"]
    assert [task.result() for task in applied] == [True, False, True]
    assert commits == [["a"], ["b", "c"], ["c"]]


async def test_who_gives_up_waiting_takes_its_batch_along() -> None:
    commits: list[list[str]] = []
    free, began = asyncio.Event(), asyncio.Event()

    async def commit(batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        commits.append([one.shard_id for one in batches])
        began.set()
        await free.wait()
        return []

    gathering = Gathering(commit)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gathering.apply(batch("a")))
        await began.wait()
        waiting = tasks.create_task(gathering.apply(batch("b")))
        await asyncio.sleep(0)
        waiting.cancel()
        tasks.create_task(gathering.apply(batch("c")))
        await asyncio.sleep(0)
        free.set()
    assert commits == [["a"], ["c"]]


async def test_few_rows_wait_for_others_and_many_do_not() -> None:
    commits: list[list[str]] = []

    async def commit(batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        commits.append([one.shard_id for one in batches])
        return []

    gathering = Gathering(commit, Pace(interval_s=3600, rows_enough=2))
    await gathering.apply(batch("a"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gathering.apply(batch("b")))
        for _ in range(5):
            await asyncio.sleep(0)
        assert commits == [["a"]]
        tasks.create_task(gathering.apply(batch("c")))
    assert commits == [["a"], ["b", "c"]]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await gathering.apply(batch("d"))
