"""The embedded search index as a sink: durable, idempotent, held against a dictionary."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.connectors.sinks.tantivy.folder import SearchFolder, WritableFolder
from rowtide.connectors.sinks.tantivy.held_rows import HeldRows
from rowtide.connectors.sinks.tantivy.sink import TantivySink
from rowtide.connectors.sinks.tantivy.text_index import LANGUAGES
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.key_ranges import Range, holds
from rowtide.core.values.schema import STRING, KeyColumn
from tests.connectors.sink_contract import check_any_order
from tests.connectors.sink_histories import (
    TABLE,
    Columns,
    History,
    columns,
    histories,
    key_bytes,
    row,
)
from tests.support.searches import examples

WATCHED_S = 1.1
"""Twice as often as tantivy looks for commits."""


@asynccontextmanager
async def open_sink(folder: Path, language: str = "none") -> AsyncIterator[TantivySink]:
    sink = TantivySink(folder, language=language, refresh_s=60)
    await sink.open(TABLE)
    try:
        yield sink
    finally:
        await sink.close()


def batch(*rows: SinkRow, covers: Range | None = None, stamp: int = 0) -> SinkBatch:
    return SinkBatch(TABLE.name, "shard", rows, covers, stamp)


async def read_sink_rows(sink: TantivySink) -> dict[bytes, HeldRow]:
    return {row.key_bytes: row for row in await sink.read_rows(b"", b"", limit=100)}


def same(one: object, other: object) -> bool:
    """True if two values are the same, NaN and the sign of zero included."""
    return repr(one) == repr(other)


def search_ids(folder: Path, query: str) -> list[str]:
    """Return the ids that another reader of the folder finds, in order."""
    searched = SearchFolder(folder)
    try:
        return sorted(str(row.key["id"]) for row in searched.search(query, limit=100).rows)
    finally:
        searched.close()


async def test_a_row_is_found_updated_and_gone(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 1, {"title": "Blue shoes"}), row("b", 2, {"n": 5})))
        await sink.refresh()
        assert search_ids(tmp_path, "shoes") == ["a"]
        await sink.apply(batch(row("a", 3, {"title": "Red hats"}), row("b", 4, None)))
        await sink.refresh()
        assert search_ids(tmp_path, "shoes") == []
        assert search_ids(tmp_path, "title:hats") == ["a"]
        assert search_ids(tmp_path, "n:5") == []


async def test_an_older_row_and_one_of_before_a_delete_change_nothing(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 5, {"n": 5}), row("b", 6, None)))
        await sink.apply(batch(row("a", 4, {"n": 4}), row("b", 1, {})))
        assert await read_sink_rows(sink) == {key_bytes("a"): HeldRow(key_bytes("a"), 5, {"n": 5})}
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("b", 5, {"late": True})))
        assert key_bytes("b") not in await read_sink_rows(sink)


async def test_a_page_as_of_the_same_stamp_counts_with_what_it_says_now(tmp_path: Path) -> None:
    """The connector's settings have changed, and nothing in the table has: it was passed over."""
    async with open_sink(tmp_path) as sink:
        page_rows = row("a", 5, {"n": 1, "m": 2}, page=True), row("b", 5, {}, page=True)
        await sink.apply(batch(*page_rows, covers=(b"", b""), stamp=5))
        page_rows = row("a", 5, {"n": 1}, page=True), row("b", 5, None, page=True)
        await sink.apply(batch(*page_rows, covers=(b"", b""), stamp=5))
        assert await read_sink_rows(sink) == {key_bytes("a"): HeldRow(key_bytes("a"), 5, {"n": 1})}
        await sink.refresh()
    assert search_ids(tmp_path, "m:2") == []


async def test_a_page_of_a_snapshot_ends_rows_that_it_has_not(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(*(row(name, 1, {}) for name in "abc"), row("d", 9, {})))
        page = batch(row("b", 5, {}, page=True), covers=(key_bytes("b"), b""), stamp=5)
        await sink.apply(page)
        assert set(await read_sink_rows(sink)) == {key_bytes("a"), key_bytes("b"), key_bytes("d")}
        # A process was paused with an older page. It has a row for which no delete was
        # ever sent.
        await sink.apply(batch(row("e", 4, {})))
        assert key_bytes("e") not in await read_sink_rows(sink)
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("e", 4, {})))
        await sink.apply(batch(row("0", 4, {})))
        assert set(await read_sink_rows(sink)) == {key_bytes(name) for name in "0abd"}


@given(history=histories())
@settings(max_examples=examples(15, 30))
def test_whatever_the_order_the_end_is_the_table(history: History) -> None:
    def make(folder: Path) -> TantivySink:
        return TantivySink(folder, language="none", refresh_s=60)

    check_any_order(make, history)


@st.composite
def any_batches(draw: st.DrawFn) -> SinkBatch:
    """Return a batch that need not be true of any table."""
    names = draw(st.lists(st.sampled_from("abcdef"), max_size=4))
    rows = [
        row(name, draw(st.integers(1, 20)), draw(st.one_of(st.none(), columns))) for name in names
    ]
    if not draw(st.booleans()):
        return batch(*sorted(rows, key=lambda row: row.stamp))
    low, high = sorted(draw(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=2)))
    covers = (key_bytes(low), draw(st.sampled_from([key_bytes(high), b""])))
    return batch(*rows, covers=covers, stamp=draw(st.integers(1, 20)))


@given(batches=st.lists(any_batches(), max_size=12), reopened=st.sets(st.integers(0, 11)))
@settings(max_examples=examples(50, 150))
def test_rows_are_held_as_a_dictionary_would(batches: list[SinkBatch], reopened: set[int]) -> None:
    model: dict[bytes, tuple[int, object]] = {}
    floors: list[tuple[Range, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows = HeldRows(Path(folder), writes=True)
        for at, sink_batch in enumerate(batches):
            rows.apply([sink_batch])
            _apply_to_model(sink_batch, model, floors)
            if at in reopened:
                rows.close()
                rows = HeldRows(Path(folder), writes=True)
            held = rows.living((b"", b""), limit=100)
            got = [(r.key_bytes, r.stamp, r.document.columns) for r in held if r.document]
            living = [(key, *was) for key, was in sorted(model.items()) if was[1] is not None]
            assert same(got, living)
        rows.close()


def _apply_to_model(
    sink_batch: SinkBatch, model: dict[bytes, tuple[int, object]], floors: list[tuple[Range, int]]
) -> None:
    if sink_batch.covers is not None:
        named = {row.key_bytes for row in sink_batch}
        for key, (stamp, columns) in list(model.items()):
            absent = holds((sink_batch.covers,), key) and key not in named
            if absent and stamp < sink_batch.stamp and columns is not None:
                model[key] = (sink_batch.stamp, None)
        floors.append((sink_batch.covers, sink_batch.stamp))
    for one in sink_batch:
        floor = max([s for covered, s in floors if holds((covered,), one.key_bytes)], default=0)
        if one.stamp >= floor and one.stamp >= model.get(one.key_bytes, (0, None))[0]:
            columns = None if one.columns is None else dict(one.columns)
            model[one.key_bytes] = (one.stamp, columns)


@given(columns=st.dictionaries(st.text(max_size=6), st.one_of(st.text(), st.floats()), max_size=5))
@settings(max_examples=examples(30, 60))
def test_no_name_and_no_value_loses_a_row(columns: dict[str, str | float]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with WritableFolder(folder, TABLE, "english") as written:
            written.apply([batch(row("a", 1, columns))])
            assert len(written.list_rows((b"", b""), limit=9)) == 1
        assert search_ids(folder, "*") == ["a"]


def test_nothing_is_written_behind_a_close(tmp_path: Path) -> None:
    """A thread that looked for commits made a file, where the folder was being removed."""
    lock = tmp_path / "index" / ".tantivy-meta.lock"
    with WritableFolder(tmp_path, TABLE, "english") as written:
        written.apply([batch(row("a", 1, {}))])
    lock.unlink()
    until_s = time.monotonic() + WATCHED_S
    while time.monotonic() < until_s:
        assert not lock.exists()


async def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    columns: Columns = {
        "big": 2**63 - 1,
        "low": -(2**63),
        "half": 0.1,
        "minus zero": -0.0,
        "no number": math.nan,
        "no end": -math.inf,
        "bytes": b"\x00\xff",
        "yes": True,
        "": "an empty name",
        "text": "\x00\ud7ff \U0001f600",
    }
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 1, columns)))
        [only] = await sink.read_rows(b"", b"", limit=1)
        assert same(dict(only.columns), dict(sink.convert_columns(columns)))


async def test_what_is_searched_but_not_as_held_is_not_told_as_held(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(*(row(name, 1, {"n": 1}) for name in "abc")))
        await sink.refresh()
    rows = HeldRows(tmp_path, writes=True)
    rows.apply([batch(row("b", 2, {"n": 2}))])
    rows.mark_indexed([key_bytes("b")])  # The index has the former row, but no mark says so.
    rows.close()
    async with open_sink(tmp_path) as sink:
        assert [r.key_bytes for r in await sink.read_rows(b"", b"", limit=2)] == [
            key_bytes("a"),
            key_bytes("c"),
        ]


async def test_batches_that_wait_together_are_all_durable(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        async with asyncio.TaskGroup() as tasks:
            for number in range(50):
                tasks.create_task(sink.apply(batch(row(f"{number:02}", 1, {"n": number}))))
        assert len(await read_sink_rows(sink)) == 50


async def test_another_language_makes_the_index_anew(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 1, {"title": "running shoes"})))
    assert search_ids(tmp_path, "run") == []
    async with open_sink(tmp_path, "english"):
        assert search_ids(tmp_path, "run shoe") == ["a"]


async def test_a_damaged_index_is_made_anew_from_the_rows(tmp_path: Path) -> None:
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 1, {"title": "shoes"})))
    (tmp_path / "index" / "meta.json").write_text("{")
    async with open_sink(tmp_path):
        assert search_ids(tmp_path, "shoes") == ["a"]


async def test_one_process_writes_at_a_time_and_says_who(tmp_path: Path) -> None:
    async with open_sink(tmp_path):
        other = TantivySink(tmp_path, language="none", refresh_s=1)
        with pytest.raises(Unavailable, match=f"is being written by process {os.getpid()}"):
            await other.open(TABLE)
        await other.close()
    async with open_sink(tmp_path):
        pass


async def test_another_process_reads_what_is_held_while_one_writes(tmp_path: Path) -> None:
    reader = TantivySink(tmp_path, language="none", refresh_s=60)
    with pytest.raises(Unavailable, match="has no search index yet"):
        await reader.open_to_read(TABLE)
    async with open_sink(tmp_path) as sink:
        await sink.apply(batch(row("a", 1, {"n": 1})))
        await reader.open_to_read(TABLE)
        # What the index is still to get is held for certain.
        assert await read_sink_rows(reader) == await read_sink_rows(sink)
        await sink.apply(batch(row("b", 2, {"n": 2}), row("a", 3, None)))
        assert set(await read_sink_rows(reader)) == {key_bytes("b")}
    await reader.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_its_endings(language: str, tmp_path: Path) -> None:
    with WritableFolder(tmp_path, TABLE, language) as written:
        written.apply([batch(row("a", 1, {"title": "Straßen 漢字 words"}))])
    assert search_ids(tmp_path, "words") == ["a"]


async def test_a_folder_is_of_one_table(tmp_path: Path) -> None:
    async with open_sink(tmp_path):
        pass
    other = TantivySink(tmp_path, language="none", refresh_s=1)
    with pytest.raises(Rejected, match="give this one another folder"):
        await other.open(TableShape("others", (KeyColumn("id", STRING),)))
    await other.close()


def test_settings_are_read_strictly(tmp_path: Path) -> None:
    place = ConnectorContext("search", str(tmp_path))
    make_sink(Fields({"kind": "tantivy", "language": "english", "refresh_ms": 50}, "sink"), place)
    with pytest.raises(SettingsRefused, match="language must be one of"):
        make_sink(Fields({"kind": "tantivy", "language": "klingon"}, "sink"), place)
    with pytest.raises(SettingsRefused, match="has no setting langauge"):
        make_sink(Fields({"kind": "tantivy", "langauge": "english"}, "sink"), place)


WRITER = """
import asyncio, sys
from pathlib import Path
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.tantivy.sink import TantivySink
from rowtide.connectors.sinks.tantivy.text_index import LANGUAGES
from tests.connectors.sink_histories import TABLE, row

async def main():
    sink = TantivySink(Path(sys.argv[1]), language="none", refresh_s=0.02)
    await sink.open(TABLE)
    for number in range(100_000):
        rows = [row(f"{number:06}-{i}", number + 1, {"n": number}) for i in range(20)]
        await sink.apply(SinkBatch(TABLE.name, "shard", rows))
        print(number, flush=True)

asyncio.run(main())
"""


@contextmanager
def writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("batches", [1, 20, 57])
async def test_what_was_applied_is_found_after_kill_9(batches: int, tmp_path: Path) -> None:
    with writer(tmp_path) as process:
        assert process.stdout is not None
        for number in range(batches):
            assert process.stdout.readline() == f"{number}\n"
        process.kill()
        more = process.stdout.read().split()
    applied = batches + len(more)
    async with open_sink(tmp_path) as sink:
        rows = await sink.read_rows(b"", b"", limit=1_000_000)
        # The batch that was in hand may be there too, whole.
        assert len(rows) in (20 * applied, 20 * (applied + 1))
    assert len(search_ids(tmp_path, f"n:{applied - 1}")) == 20
