"""A real ClickHouse: what people see, what it refuses, and what is there after kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from demo.servers.clickhouse import Clickhouse
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.clickhouse.sink import ClickhouseSettings, ClickhouseSink
from rowtide.connectors.sinks.columnar.layout import Cells
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import (
    KEYS,
    SHAPE,
    STAMP_FIRST,
    Model,
    State,
    batch_of,
    comparable,
)
from tests.connectors.analytics.writer_process import BATCH, batch

pytestmark = pytest.mark.system

ALL = 1_000

SEEN: list[tuple[list[Scalar], set[str]]] = [
    ([1, 2], {"1", "2"}),
    ([1, 1.5], {"1", "1.5"}),
    ([2**53 + 1, 1.5], {"9007199254740993", "1.5"}),
    ([1, "one"], {"1", "one"}),
    ([True, b"\x00\xff", 0.5], {"true", "\\\\x00ff", "0.5"}),
]


@pytest.mark.parametrize(("values", "seen"), SEEN)
async def test_a_view_shows_the_values_that_were_written(
    values: list[Scalar], seen: set[str], clickhouse: Clickhouse
) -> None:
    view = f"seen_{abs(hash(repr(values)))}"
    sink = ClickhouseSink(ClickhouseSettings(clickhouse.url, "shop", view=view))
    await sink.open(SHAPE)
    for at, value in enumerate(values):
        await sink.apply(batch_of(State(KEYS[at], 10 + at, {"v": value, "a.b": at})))
    await sink.close()
    assert set(clickhouse.ask(f"SELECT v FROM shop.{view}").splitlines()) == seen
    assert clickhouse.ask(f"SELECT sum(a_b) FROM shop.{view}").strip() != "0"
    views = clickhouse.ask("SHOW TABLES FROM shop").splitlines()
    assert [name for name in views if name.startswith(view) and "__" not in name] == [view]
    assert not [name for name in views if "__new" in name or "__old" in name]


async def test_a_server_with_too_many_parts_is_unavailable(clickhouse: Clickhouse) -> None:
    sink = ClickhouseSink(ClickhouseSettings(clickhouse.url, view="parts"))
    await sink.open(SHAPE)
    # The sink takes the table that is there: one that a single part is too many for.
    made = clickhouse.ask("SHOW CREATE TABLE parts__rows FORMAT TabSeparatedRaw").strip()
    clickhouse.ask("DROP TABLE parts__rows")
    assert "SETTINGS" in made
    clickhouse.ask(f"{made}, parts_to_throw_insert = 1, parts_to_delay_insert = 1")
    clickhouse.ask("SYSTEM STOP MERGES")
    try:
        assert await _apply_until_refused(sink) == 1
    finally:
        clickhouse.ask("SYSTEM START MERGES")
        await sink.close()


async def _apply_until_refused(sink: ClickhouseSink) -> int:
    for at in range(3):
        try:
            await sink.apply(batch_of(State(KEYS[0], at, {})))
        except Unavailable as error:
            if "Code: 252" not in str(error):
                raise
            return at
    raise AssertionError("never refused")


async def test_a_server_that_is_killed_keeps_what_it_answered(
    clickhouse_program: Path, tmp_path: Path
) -> None:
    with Clickhouse(tmp_path, clickhouse_program) as server:
        sink = ClickhouseSink(ClickhouseSettings(server.url, view="rows"))
        await sink.open(SHAPE)
        model, killed = Model(), 0
        for first in range(0, 30 * BATCH, BATCH):
            model.deliver(batch(first))
            if first % (10 * BATCH) == 7 * BATCH:
                # In the middle of an insert, or just before or after it.
                async with asyncio.TaskGroup() as tasks:
                    applying = tasks.create_task(_try_to_apply(sink, first))
                    await asyncio.sleep(0)
                    server.kill()
                killed += not applying.result()
                server.start()
                assert comparable(await sink.read_rows(b"", b"", limit=0)) == []
            assert await sink.apply(batch(first)) == []
        held = await sink.read_rows(b"", b"", limit=ALL)
        await sink.close()
        assert comparable(held) == comparable(model.living())
        assert killed
        # Columns and floors are there after a restart too.
        sink = ClickhouseSink(ClickhouseSettings(server.url, view="rows"))
        await sink.open(SHAPE)
        assert comparable(await sink.read_rows(b"", b"", limit=ALL)) == comparable(model.living())
        await sink.apply(batch_of(State(KEYS[0], STAMP_FIRST, {"value": True})))
        await sink.close()


async def _try_to_apply(sink: ClickhouseSink, first: int) -> bool:
    try:
        await sink.apply(batch(first))
    except Unavailable:
        return False
    return True


class CancelledAfterInsert(ClickhouseSink):
    """A sink whose process was paused, lost its lease, and is cancelled right after an insert."""

    async def _insert(self, rows: Sequence[SinkRow], cells: Cells) -> None:
        await super()._insert(rows, cells)
        if cells:
            raise asyncio.CancelledError


async def test_a_cancelled_insert_leaves_no_row_below_a_floor(clickhouse: Clickhouse) -> None:
    settings = ClickhouseSettings(clickhouse.url, view="cancelled")
    paused, sink = CancelledAfterInsert(settings), ClickhouseSink(settings)
    for one in (paused, sink):
        await one.open(SHAPE)
    page = SinkBatch(SHAPE.name, "s1", [], covers=(b"", b""), stamp=STAMP_FIRST + 5)
    await sink.apply(page)
    with pytest.raises(asyncio.CancelledError):
        await paused.apply(batch_of(State(KEYS[0], STAMP_FIRST + 4, {"a": 1})))
    assert await sink.read_rows(b"", b"", limit=ALL) == []
    for one in (paused, sink):
        await one.close()
