"""What is in a DuckDB file, who may open it and when, and what people see."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.duckdb.sink import RELEASE_S, DuckdbSettings, DuckdbSink
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import KEYS, SHAPE, State, batch_of, encode_key
from tests.connectors.analytics.targets import query_duckdb

AVAILABLE_S_MAX = 60.0
HOLDER = """
import duckdb, sys
held = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


def settings(folder: Path, *, copy_every_s: int = 0) -> DuckdbSettings:
    return DuckdbSettings(folder / "t.duckdb", folder / "copy.duckdb", copy_every_s=copy_every_s)


async def read_shown_values(folder: Path, *values: Scalar) -> list[Scalar]:
    """Return what people see of an attribute that has these values in so many rows."""
    sink = DuckdbSink(settings(folder))
    await sink.open(SHAPE)
    for at, value in enumerate(values):
        await sink.apply(batch_of(State(KEYS[at], 10 + at, {"v": value})))
    await sink.close()
    return [row[0] for row in query_duckdb(folder / "t.duckdb", "SELECT v FROM orders")]


SEEN: list[tuple[list[Scalar], set[object]]] = [
    ([1, 2], {1, 2}),
    ([1, 1.5], {1.0, 1.5}),
    ([2**53 + 1, 1.5], {"9007199254740993", "1.5"}),
    ([1.5, 1, 2**53 + 1], {"9007199254740993", "1.5", "1"}),
    ([1, "one"], {"1", "one"}),
    ([True, b"\x00\xff", 0.5], {"true", "\\x00ff", "0.5"}),
]


@pytest.mark.parametrize(("values", "seen"), SEEN)
async def test_a_view_shows_the_values_that_were_written(
    values: list[Scalar], seen: set[object], tmp_path: Path
) -> None:
    assert set(await read_shown_values(tmp_path, *values)) == seen


async def test_a_large_integer_in_the_file_is_seen_after_it_is_opened_again(
    tmp_path: Path,
) -> None:
    assert await read_shown_values(tmp_path, 1.5, 2**53 + 1) != []
    assert set(await read_shown_values(tmp_path, 1.5)) >= {"9007199254740993", "1.5"}


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the file open until it reads a line."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "t.duckdb")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


async def test_a_file_that_another_process_holds_is_unavailable(
    tmp_path: Path, holder: subprocess.Popen[bytes]
) -> None:
    sink = DuckdbSink(settings(tmp_path))
    with pytest.raises(Unavailable, match=f"PID {holder.pid}"):
        await sink.open(SHAPE)
    holder.communicate(b"\n")
    await sink.open(SHAPE)
    await sink.apply(batch_of(State(KEYS[0], 1, {"a": 1})))
    await sink.close()


async def test_a_copy_may_be_read_while_the_file_is_held(tmp_path: Path) -> None:
    sink = DuckdbSink(settings(tmp_path, copy_every_s=3600))
    await sink.open(SHAPE)
    await sink.apply(batch_of(State(KEYS[0], 1, {"a": 1}), State(KEYS[1], 2, {"a": "two"})))
    await sink.apply(batch_of(State(KEYS[1], 3, None)))
    assert sink._copy_timer is not None
    sink._begin_copy()
    await sink.read_rows(
        b"", b"", limit=1
    )  # In the same thread: the copy is there when it returns.
    await sink.apply(batch_of(State(KEYS[0], 4, {"a": 4})))
    assert query_duckdb(tmp_path / "copy.duckdb", "SELECT a FROM orders") == [("1",)]
    await sink.close()
    assert query_duckdb(tmp_path / "copy.duckdb", "SELECT a FROM orders") == [("4",)]


async def test_a_file_is_let_go_when_no_change_comes(tmp_path: Path) -> None:
    writer, reader = DuckdbSink(settings(tmp_path)), DuckdbSink(settings(tmp_path))
    await writer.open(SHAPE)
    await writer.apply(batch_of(State(KEYS[0], 1, {"a": 1})))
    assert writer._release_timer is not None
    assert writer._release_timer.when() <= asyncio.get_running_loop().time() + RELEASE_S
    # Both are in this process. There DuckDB recognises a file that is open for writing by
    # its settings.
    writer._release()
    await reader.open_to_read(SHAPE)
    (row,) = await reader.read_rows(b"", b"", limit=9)
    assert row.columns == {"a": 1}
    await reader.close()
    writer._release()
    await writer.apply(batch_of(State(KEYS[0], 2, {"a": 2})))
    (row,) = await writer.read_rows(b"", b"", limit=9)
    assert row.columns == {"a": 2}
    await writer.close()


async def test_names_are_what_the_settings_say(tmp_path: Path) -> None:
    given = {"kind": "duckdb", "view": "Odd name", "copy_every_s": 0}
    sink = make_sink(Fields(given, "connectors.x.sink"), ConnectorContext("x", str(tmp_path)))
    await sink.open(SHAPE)
    await sink.apply(batch_of(State(KEYS[0], 1, {"select": 1, "a b": 2, "customer": 3})))
    await sink.close()
    query = 'SELECT "select", "a b", customer__integer FROM "Odd name"'
    assert query_duckdb(tmp_path / "rows.duckdb", query) == [(1, 2, 3)]


def test_a_setting_with_a_typing_error_is_refused(tmp_path: Path) -> None:
    fields = Fields({"kind": "duckdb", "fiel": "x"}, "connectors.x.sink")
    with pytest.raises(SettingsRefused, match="fiel"):
        make_sink(fields, ConnectorContext("x", str(tmp_path)))


async def test_floors_that_newer_ones_hide_are_forgotten(tmp_path: Path) -> None:
    sink = DuckdbSink(settings(tmp_path))
    await sink.open(SHAPE)
    borders = [b"", *sorted(map(encode_key, KEYS)), b""]
    for stamp, (begin, end) in enumerate(pairwise(borders)):
        await sink.apply(SinkBatch(SHAPE.name, "s1", [], covers=(begin, end), stamp=stamp))
    middle = borders[3]
    for covered in [(b"", middle), (middle, b"")]:
        await sink.apply(SinkBatch(SHAPE.name, "s1", [], covers=covered, stamp=100))
    await sink.close()
    found = query_duckdb(tmp_path / "t.duckdb", "SELECT begin, until, stamp FROM orders__covers")
    assert sorted(found) == [(b"", middle, 100), (middle, b"", 100)]


async def test_sinks_of_one_process_share_a_file(tmp_path: Path) -> None:
    sinks = [DuckdbSink(replace(settings(tmp_path), view=f"t{number}")) for number in range(3)]

    async def fill(sink: DuckdbSink, number: int) -> None:
        await wait_until_available(lambda: sink.open(SHAPE))
        for at in range(6):
            batch = batch_of(State(KEYS[at], at, {f"c{at}": number}))
            await wait_until_available(lambda batch=batch: sink.apply(batch))  # type: ignore[misc]
        await sink.close()

    async with asyncio.TaskGroup() as tasks:
        for number, sink in enumerate(sinks):
            tasks.create_task(fill(sink, number))
    for number in range(3):
        query = f"SELECT count(*), max(c5) FROM t{number}"
        assert query_duckdb(tmp_path / "t.duckdb", query) == [(6, number)]


async def wait_until_available(call: Callable[[], Awaitable[object]]) -> None:
    """Do as the runtime does where two connections of a file are in each other's way."""
    async with asyncio.timeout(AVAILABLE_S_MAX):
        while True:
            try:
                await call()
            except Unavailable:
                await asyncio.sleep(0)
            else:
                return


TYPED: list[tuple[str, list[Scalar], list[object]]] = [
    ("DECIMAL(10,2)", ["1.50", "-0.01", 7, 2.25], [Decimal("1.50"), Decimal("-0.01"), 7, 2.25]),
    ("decimal(38,0)", [2**62, "9" * 38], [2**62, int("9" * 38)]),
    ("DECIMAL(4,2)", ["12345", "x", "1.5"], [None, None, Decimal("1.50")]),
    ("DATE", ["2024-02-29", "0000-00-00"], [date(2024, 2, 29), None]),
    ("TIME", ["01:02:03.45", "838:59:59"], [time(1, 2, 3, 450000), None]),
    (
        "TIMESTAMP",
        ["2024-02-29 01:02:03.000001"],
        [datetime.fromisoformat("2024-02-29T01:02:03.000001")],
    ),
    ("UBIGINT", [5, "18446744073709551615"], [5, 2**64 - 1]),
    ("DOUBLE", [2**53 + 1, 1.5], [float(2**53), 1.5]),
    ("VARCHAR", [5], ["5"]),
    ("INTEGER", [5], [5]),
]


@pytest.mark.parametrize(("of_type", "values", "seen"), TYPED)
async def test_a_view_shows_an_attribute_in_the_type_that_is_declared(
    of_type: str, values: list[Scalar], seen: list[object], tmp_path: Path
) -> None:
    for columns in ({"v": of_type, "later": "DATE"}, {}):
        sink = DuckdbSink(replace(settings(tmp_path), types=columns))
        await sink.open(SHAPE)
        for at, value in enumerate(values):
            await sink.apply(batch_of(State(KEYS[at], 10 + at, {"v": value})))
        # What is behind the view is compared, and has every value as it came.
        assert [row.columns for row in await sink.read_rows(b"", b"", limit=99)] == [
            {"v": value} for value in values
        ]
        await sink.close()
        if columns:
            query = "SELECT v FROM orders ORDER BY ALL"
            found = [row[0] for row in query_duckdb(tmp_path / "t.duckdb", query)]
            assert Counter(found) == Counter(seen)


@pytest.mark.parametrize("text", ["", "NUMBER", "DATE(3)", "DECIMAL(", "INT; DROP TABLE t"])
def test_what_is_no_type_of_a_view_is_refused(text: str, tmp_path: Path) -> None:
    fields = Fields({"kind": "duckdb", "columns": {"v": text}}, "sink")
    with pytest.raises(SettingsRefused, match=r"sink\.columns\.v must be DECIMAL"):
        make_sink(fields, ConnectorContext("c", str(tmp_path)))
