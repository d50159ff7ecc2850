"""A process that writes is killed in the middle: what it said is there, and going on is right."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import (
    SHAPE,
    STAMP_FIRST,
    Model,
    State,
    batch_of,
    comparable,
)
from tests.connectors.analytics.targets import MAKERS, Target
from tests.connectors.analytics.writer_process import BATCH, batch, state

ROOT = Path(__file__).resolve().parents[3]
WRITER = Path(__file__).with_name("writer_process.py")
KILLS = 2
BATCHES_MAX = 12
ALL = 1_000

Columns = Mapping[str, Scalar] | None


@pytest.mark.system
@pytest.mark.parametrize("kind", [*MAKERS])
def test_a_killed_writer_loses_nothing_and_goes_on(kind: str, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    target, count = MAKERS[kind](tmp_path), 0
    for _ in range(KILLS):
        # It begins a little earlier, like a reader whose checkpoint is older than its
        # last batch.
        count = _write_and_kill(kind, tmp_path, max(0, count - 2 * BATCH), chance)
        asyncio.run(_check_written(target, count))
    asyncio.run(_goes_on(target, count))


def test_what_a_kill_leaves_of_duckdb_has_every_value_after_a_new_column(tmp_path: Path) -> None:
    """DuckDB 2.0.0 forgets, reading a log in which a column was added, a text where none was."""
    file, left = tmp_path / "file", tmp_path / "left"
    _write(file, [{0: None}, {1: {"text": "a"}}])
    _write(file, [{2: {"new": 1.5}}, {0: {"text": "b"}}], left)
    held = [row.columns for row in asyncio.run(_read_all_rows(MAKERS["duckdb"](left)))]
    assert held == [{"text": "b"}, {"text": "a"}, {"new": 1.5}]


def _write(
    folder: Path, batches: Sequence[Mapping[int, Columns]], left: Path | None = None
) -> None:
    """Write rows. Copy the open file, as a kill would leave it."""

    async def write() -> None:
        sink = MAKERS["duckdb"](folder).make()
        await sink.open(SHAPE)
        try:
            for rows in batches:
                await sink.apply(batch_of(*(_state(*row, time.time_ns()) for row in rows.items())))
            if left is not None:
                shutil.copytree(folder, left)
        finally:
            await sink.close()

    asyncio.run(write())


def _state(number: int, columns: Columns, stamp: int) -> State:
    return State((("customer", "c"), ("Number", number), ("order", b"")), stamp, columns)


def _write_and_kill(kind: str, folder: Path, first: int, chance: random.Random) -> int:
    """Run a process that writes batches, and kill it. Return the first change not
    reported as durable.
    """
    command = [sys.executable, str(WRITER), kind, str(folder), str(first)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        try:
            assert writer.stdout is not None
            for _ in range(chance.randrange(2, BATCHES_MAX)):
                count = int(writer.stdout.readline())
        finally:
            writer.kill()
        # What it said before it ended counts too.
        rest = writer.stdout.read().splitlines()
    return int(rest[-1]) if rest else count


async def _check_written(target: Target, count: int) -> None:
    held = {row.key_bytes: row for row in await _read_all_rows(target)}
    for row in held.values():
        change = state(row.stamp - STAMP_FIRST)
        assert comparable([row]) == comparable(
            [HeldRow(row.key_bytes, change.stamp, change.columns or {})]
        )
    model = Model()
    for first in range(0, count, BATCH):
        model.deliver(batch(first))
    for wanted in model.living():
        newer = held.get(wanted.key_bytes)
        # The batch under way when it was killed may be there, and may have deleted the row.
        assert newer is None or newer.stamp >= wanted.stamp
        later = range(count, count + BATCH)
        if newer is None:
            assert any(
                state(n).key == model.newest[wanted.key_bytes].key and state(n).columns is None
                for n in later
            )


async def _goes_on(target: Target, count: int) -> None:
    model = Model()
    sink = target.make()
    await sink.open(SHAPE)
    try:
        for first in range(0, count + 5 * BATCH, BATCH):
            model.deliver(batch(first))
            if first >= count - 3 * BATCH:
                await sink.apply(batch(first))
    finally:
        await sink.close()
    assert comparable(await _read_all_rows(target)) == comparable(model.living())


async def _read_all_rows(target: Target) -> list[HeldRow]:
    sink = target.make()
    await sink.open(SHAPE)
    try:
        return await sink.read_rows(b"", b"", limit=ALL)
    finally:
        await sink.close()
