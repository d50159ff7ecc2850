"""What every analytics sink does, one rule at a time.

Tests of ClickHouse, which is a server, have pytest.mark.system from conftest.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import Key, SinkBatch, TableShape
from rowtide.core.values import schema
from rowtide.core.values.schema import KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import (
    KEYS,
    SHAPE,
    STAMP_FIRST,
    State,
    batch_of,
    comparable,
    encode_key,
    row_of,
)
from tests.connectors.analytics.targets import AnySink, Target

ALL = 1_000
ONE, OTHER = KEYS[1], KEYS[3]


def put(at: int, columns: Mapping[str, Scalar], key: Key = ONE) -> State:
    """Return a row as of the stamp ``at`` after the first."""
    return State(key, STAMP_FIRST + at, columns)


def make_delete(at: int) -> State:
    return State(ONE, STAMP_FIRST + at, None)


def page(at: int, *rows: State, begin: bytes = b"", end: bytes = b"") -> SinkBatch:
    sink_rows = [row_of(row) for row in rows]
    return SinkBatch(SHAPE.name, "s1", sink_rows, covers=(begin, end), stamp=STAMP_FIRST + at)


@asynccontextmanager
async def open_sink(target: Target, **settings: object) -> AsyncIterator[AnySink]:
    sink = target.make(**settings)
    await sink.open(SHAPE)
    try:
        yield sink
    finally:
        await sink.close()


async def read_living_rows(sink: AnySink) -> list[tuple[int, dict[str, Scalar]]]:
    """Return the living rows: (stamp after the first, columns)."""
    rows = await sink.read_rows(b"", b"", limit=ALL)
    return [(row.stamp - STAMP_FIRST, dict(row.columns)) for row in rows]


async def test_a_late_update_does_not_bring_a_deleted_row_back(target: Target) -> None:
    async with open_sink(target) as sink:
        await sink.apply(batch_of(put(1, {"a": 1}), make_delete(3)))
        await sink.apply(batch_of(put(2, {"a": 2})))
        assert await read_living_rows(sink) == []
        await sink.apply(batch_of(put(4, {"a": 4})))
        assert await read_living_rows(sink) == [(4, {"a": 4})]


async def test_a_page_ends_the_older_rows_that_it_does_not_have(target: Target) -> None:
    async with open_sink(target) as sink:
        await sink.apply(batch_of(put(1, {"a": 1}), put(2, {"b": "x"}, OTHER)))
        await sink.apply(page(5, put(5, {"b": "y"}, OTHER)))
        assert await read_living_rows(sink) == [(5, {"b": "y"})]
        # Newer than the page, so that the page says nothing of it.
        await sink.apply(batch_of(put(6, {"a": 6})))
        await sink.apply(page(5))
        assert await read_living_rows(sink) == [(6, {"a": 6}), (5, {"b": "y"})]


async def test_a_page_keeps_out_older_rows_of_which_nothing_was_known(target: Target) -> None:
    async with open_sink(target) as sink:
        await sink.apply(page(5, end=encode_key(OTHER)))
        await sink.apply(batch_of(put(4, {"a": 4}), put(4, {"b": 4}, OTHER)))
        assert await read_living_rows(sink) == [(4, {"b": 4})]
    async with open_sink(target) as sink:
        await sink.apply(batch_of(put(3, {"a": 3})))
        assert await read_living_rows(sink) == [(4, {"b": 4})]


async def test_what_just_precedes_a_page_is_kept_out_too(target: Target) -> None:
    async with open_sink(target) as first, open_sink(target) as sink:
        # A file that one process holds has no second sink that could be paused.
        paused = first if target.several else sink
        await paused.read_rows(b"", b"", limit=1)
        await sink.apply(page(5))
        await paused.apply(batch_of(put(4, {"a": 4})))
        assert await read_living_rows(sink) == []
        await paused.apply(batch_of(put(5, {"a": 5})))
        assert await read_living_rows(sink) == [(5, {"a": 5})]


async def test_a_row_is_whole_and_keeps_no_column_it_has_lost(target: Target) -> None:
    async with open_sink(target) as sink:
        await sink.apply(batch_of(put(1, {"a": 1, "b": 2})))
        await sink.apply(batch_of(put(2, {"b": 3, "c": True})))
        await sink.apply(batch_of(put(3, {}, OTHER)))
        assert await read_living_rows(sink) == [(2, {"b": 3, "c": True}), (3, {})]


async def test_each_kind_of_value_stays_what_it_is(target: Target) -> None:
    kinds: list[Scalar] = [1, 1.5, True, "1", b"1", 2**63 - 1, float("inf")]
    async with open_sink(target) as sink:
        for at, value in enumerate(kinds):
            await sink.apply(batch_of(put(at, {"v": value, "V": at})))
            ((stamp, columns),) = await read_living_rows(sink)
            assert (stamp, columns["V"]) == (at, at)
            assert repr(columns["v"]) == repr(value)


async def test_a_row_of_too_many_columns_is_refused_and_others_are_not(target: Target) -> None:
    async with open_sink(target, columns_max=3) as sink:
        many = {f"c{number}": number for number in range(4)}
        batch = batch_of(put(1, {"a": 1}), put(2, many, OTHER))
        (refused,) = await sink.apply(batch)
        assert refused.row is batch.rows[1]
        assert "columns_max" in refused.reason
        assert await read_living_rows(sink) == [(1, {"a": 1})]
        assert await sink.apply(batch_of(put(3, {"a": 3, "b": 3, "c": 3}))) == []


async def test_a_page_that_comes_with_other_columns_as_of_the_same_stamp_counts(
    target: Target,
) -> None:
    """The connector's settings have changed, and nothing in the table has: it was passed over."""
    if target.grows:
        pytest.skip("Who reads files decides, and can't tell two of one stamp apart.")
    async with open_sink(target) as sink:
        await sink.apply(page(5, put(5, {"a": 1, "b": 2}), put(5, {"a": 3}, OTHER)))
        await sink.apply(page(5, put(5, {"a": 1}), State(OTHER, STAMP_FIRST + 5, None)))
        assert await read_living_rows(sink) == [(5, {"a": 1})]
        await sink.apply(page(5, put(5, {"a": 1}), put(5, {"a": 3}, OTHER)))
        assert await read_living_rows(sink) == [(5, {"a": 1}), (5, {"a": 3})]


async def test_a_row_that_a_page_had_refused_is_taken_when_it_is_tried_again(
    target: Target,
) -> None:
    """As of the page's own stamp, where nothing has changed since: it was below what is gone."""
    async with open_sink(target, columns_max=1) as sink:
        await sink.apply(batch_of(put(1, {"a": 1}), put(1, {"a": 1}, OTHER)))
        (refused,) = await sink.apply(page(5, put(5, {"a": 5, "b": 5})))
        assert refused.row.key == ONE
    async with open_sink(target, columns_max=2) as sink:
        assert await sink.apply(batch_of(put(5, {"a": 5, "b": 5}))) == []
        assert await read_living_rows(sink) == [(5, {"a": 5, "b": 5})]


async def test_rows_are_read_by_range_and_limit(target: Target) -> None:
    async with open_sink(target) as sink:
        await sink.apply(batch_of(*(put(1, {}, key) for key in KEYS)))
        keys = sorted(map(encode_key, KEYS))
        for begin, end, limit in [(0, 3, 9), (2, 5, 9), (1, 5, 2), (3, 6, 9)]:
            until = keys[end] if end < len(keys) else b""
            rows = await sink.read_rows(keys[begin], until, limit=limit)
            assert [row.key_bytes for row in rows] == keys[begin:end][:limit]


async def test_shards_apply_at_the_same_time(target: Target) -> None:
    async with open_sink(target) as sink, asyncio.TaskGroup() as tasks:
        for shard in range(12):
            states = [
                put(at * 12 + shard, {f"s{shard % 3}": at}, key) for at, key in enumerate(KEYS)
            ]
            tasks.create_task(sink.apply(batch_of(*states, shard=f"s{shard}")))
    async with open_sink(target) as sink:
        expected = [(at * 12 + 11, {"s2": at}) for at, _ in enumerate(KEYS)]
        assert sorted(await read_living_rows(sink)) == sorted(expected)


async def test_another_table_at_the_same_place_is_refused(target: Target) -> None:
    async with open_sink(target):
        pass
    sink = target.make()
    with pytest.raises(SettingsRefused, match="key"):
        await sink.open(TableShape(SHAPE.name, (KeyColumn("id", schema.STRING),)))
    await sink.close()


async def test_what_is_expected_is_what_is_held(target: Target) -> None:
    columns: dict[str, Scalar] = {"a": -0.0, "b": b"\x00", "c": "\x00", "d": False}
    async with open_sink(target) as sink:
        await sink.apply(batch_of(put(1, columns)))
        (row,) = await sink.read_rows(b"", b"", limit=ALL)
        wanted = row._replace(columns=sink.convert_columns(columns))
        assert comparable([row]) == comparable([wanted])
