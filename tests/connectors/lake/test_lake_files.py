"""What Delta tables and Parquet folders consist of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.columnar.layout import Seen
from rowtide.connectors.sinks.lake.delta_sink import DeltaSettings, DeltaSink
from rowtide.connectors.sinks.lake.delta_table import DeltaRows
from rowtide.connectors.sinks.lake.parquet_sink import ParquetSettings, ParquetSink
from tests.connectors.analytics.facts import KEYS, SHAPE, STAMP_FIRST, State, batch_of, row_of
from tests.connectors.analytics.targets import query_duckdb

DAY = 86_400_000_000


def state(at: int, value: object, *, key: int = 0) -> State:
    return State(KEYS[key], STAMP_FIRST + at, {"v": value})  # type: ignore[dict-item]


async def test_a_delta_table_is_compacted_and_old_files_go(tmp_path: Path) -> None:
    place = tmp_path / "orders"
    sink = DeltaSink(DeltaSettings(str(place), commit_every_ms=0, compact_every=4))
    await sink.open(SHAPE)
    for at in range(3):
        await sink.apply(batch_of(state(at, at, key=at)))
    assert len(DeltaTable(place).file_uris()) == 3
    await sink.apply(batch_of(state(3, 3, key=3)))
    assert len(DeltaTable(place).file_uris()) == 1
    assert [row.columns for row in await sink.read_rows(b"", b"", limit=9)] == [
        {"v": at} for at in (0, 1, 2, 3)
    ]
    await sink.close()


class Interrupted(DeltaRows):
    """Rows that are compacted by another process too, just ``before`` or after it is our turn."""

    other: DeltaRows
    before: bool

    def _take_turn(self) -> None:
        if self.before:
            self.other.compact(keep_h=1)
        super()._take_turn()
        if not self.before:
            self.other.compact(keep_h=1)


@pytest.mark.parametrize("before", [True, False])
def test_a_delta_table_that_two_compact_at_once_has_each_row_once(
    tmp_path: Path, *, before: bool
) -> None:
    ours, theirs = (
        kind(str(tmp_path), {}, SHAPE, columns_max=9) for kind in (Interrupted, DeltaRows)
    )
    assert isinstance(ours, Interrupted)
    ours.other, ours.before = theirs, before
    ours.open()
    theirs.open()
    for at in range(3):
        theirs.commit([batch_of(state(at, at, key=at))])
    ours.compact(keep_h=1)
    for rows in (ours, theirs):
        held = [row.columns for row in rows.read_rows(b"", b"", 9)]
        assert held == [{"v": 0}, {"v": 1}, {"v": 2}]
    ours.commit([batch_of(state(3, 3, key=0))])
    theirs.compact(keep_h=1)
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    assert [row.columns for row in theirs.read_rows(b"", b"", 9)] == [{"v": 3}, {"v": 1}, {"v": 2}]


class Overtaken(DeltaRows):
    """Rows beside which another process commits some, once, just before columns are added."""

    other: DeltaRows
    rows: list[SinkBatch]

    def _add_columns(self, missing: Sequence[Seen]) -> None:
        while self.rows:
            self.other.commit([self.rows.pop()])
        super()._add_columns(missing)


@pytest.mark.parametrize("name", [0, 1], ids=["of a known row", "of a new row"])
def test_columns_are_added_beside_another_processs_rows(tmp_path: Path, name: int) -> None:
    ours, theirs = (
        kind(str(tmp_path), {}, SHAPE, columns_max=9) for kind in (Overtaken, DeltaRows)
    )
    assert isinstance(ours, Overtaken)
    ours.open()
    theirs.open()
    theirs.commit([batch_of(state(0, 0))])
    # A commit that took no file away is no conflict: columns are added behind it.
    ours.other, ours.rows = theirs, [batch_of(state(2, 2, key=name))]
    older = state(1, "old", key=name)
    assert ours.commit([batch_of(older, state(3, "text", key=2))]) == []
    for rows in (ours, theirs):
        held = {row.key_bytes: row.columns for row in rows.read_rows(b"", b"", 9)}
        named = row_of(older).key_bytes, row_of(state(3, "text", key=2)).key_bytes
        assert [held[key] for key in named] == [{"v": 2}, {"v": "text"}]


async def test_a_commit_of_delta_holds_the_batches_of_all_shards(tmp_path: Path) -> None:
    place = tmp_path / "orders"
    sink = DeltaSink(DeltaSettings(str(place), commit_every_ms=0))
    await sink.open(SHAPE)
    await sink.apply(batch_of(state(0, 0)))
    before = DeltaTable(place).version()
    async with asyncio.TaskGroup() as tasks:
        for at in range(1, 6):
            tasks.create_task(sink.apply(batch_of(state(at, at, key=at), shard=f"s{at}")))
    assert DeltaTable(place).version() <= before + 2
    await sink.close()


async def test_the_same_batch_is_the_same_file(tmp_path: Path) -> None:
    sink = ParquetSink(ParquetSettings(tmp_path, file_every_ms=0))
    await sink.open(SHAPE)
    first, second = batch_of(state(0, 1)), batch_of(state(DAY, 2), state(DAY + 1, 3))
    for batch in (first, second, first, second):
        await sink.apply(batch)
    files = files_in(tmp_path)
    assert [path.parent.name for path in files] == ["date=2023-11-14", "date=2023-11-15"]
    assert [path.name.split("-")[:2] for path in files] == [
        [str(STAMP_FIRST), str(STAMP_FIRST)],
        [str(STAMP_FIRST + DAY), str(STAMP_FIRST + DAY + 1)],
    ]
    await sink.close()


async def test_every_change_is_in_the_files(tmp_path: Path) -> None:
    sink = ParquetSink(ParquetSettings(tmp_path, file_every_ms=0))
    await sink.open(SHAPE)
    await sink.apply(batch_of(state(0, 1), state(1, "x"), State(KEYS[0], STAMP_FIRST + 2, None)))
    await sink.close()
    query = f"SELECT v, v__text, _rowtide_deleted FROM '{tmp_path}/date=*/*.parquet'"
    assert query_duckdb(Path(), f"{query} ORDER BY _rowtide_stamp") == [
        (1, None, False),
        (None, "x", False),
        (None, None, True),
    ]


async def test_the_query_beside_the_files_gives_the_rows_as_they_are(tmp_path: Path) -> None:
    sink = ParquetSink(ParquetSettings(tmp_path, file_every_ms=0))
    await sink.open(SHAPE)
    await sink.apply(batch_of(state(0, 1), state(1, 2, key=1), state(2, 3)))
    rows = [row_of(state(5, "five", key=2))]
    await sink.apply(
        SinkBatch(SHAPE.name, "s1", rows, covers=(rows[0].key_bytes, b""), stamp=STAMP_FIRST + 5)
    )
    await sink.apply(batch_of(state(4, "late", key=3)))
    await sink.close()
    found = query_duckdb(Path(), newest_sql(tmp_path))
    assert {row[3:] for row in found} == {(3, None), (2, None), (None, "five")}


def files_in(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.glob("date=*/*"))


def newest_sql(folder: Path) -> str:
    return (folder / "newest.sql").read_text()
