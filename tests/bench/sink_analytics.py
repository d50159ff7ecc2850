"""Changes per second into the analytics sinks.

    python -m tests.bench.sink_analytics [KIND ...]

Each kind gets batches of 1,000 rows of ten columns, one batch after another as a single shard gives
them: first rows of new keys, then updates and deletes of random ones, then the same with four
shards at a time. A number is changes applied, and durable as the sink makes them, per second; in
brackets the microseconds of CPU that this process spent on one, which tells more where others use
the machine too (a server's own work is not in it).
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from demo.servers.clickhouse import Clickhouse
from rowtide.connectors.rows import SinkBatch
from rowtide.core.values.variant import Scalar
from rowtide.deploy.kafka.config import default_cache_dir
from tests.bench.circumstances import circumstances, format_circumstances
from tests.connectors.analytics.facts import SHAPE, STAMP_FIRST, State, batch_of
from tests.connectors.analytics.targets import MAKERS, AnySink, Target, clickhouse_target

__all__ = ["main"]

BATCH = 1_000
NEW, CHANGED = 40, 40
"""Batches of new rows, and of changes to them."""
SHARDS = 4
DELETED_OF_TEN = 1


def columns(chance: random.Random) -> dict[str, Scalar]:
    """Return a row like one of a table of flights."""
    return {
        "carrier": chance.choice(["UA", "AA", "B6"]),
        "tailnum": f"N{chance.randrange(90_000)}",
        "origin": chance.choice(["EWR", "JFK", "LGA"]),
        "dest": chance.choice(["IAH", "MIA", "BQN"]),
        "dep_delay": chance.randrange(-10, 200),
        "arr_delay": chance.randrange(-10, 200),
        "air_time": chance.random() * 300,
        "distance": chance.randrange(3_000),
        "cancelled": chance.random() < 0.1,
        "time_hour": f"2013-01-01T{chance.randrange(24):02}:00:00Z",
    }


def batches() -> tuple[list[SinkBatch], list[SinkBatch]]:
    """Return batches of new rows, and of changes to random ones."""
    chance = random.Random(1)

    def state(number: int, row: int, *, may_end: bool) -> State:
        key = (("customer", "c"), ("Number", row), ("order", b""))
        ended = may_end and chance.randrange(10) < DELETED_OF_TEN
        return State(key, STAMP_FIRST + number, None if ended else columns(chance))

    count = NEW * BATCH
    new = [state(number, number, may_end=False) for number in range(count)]
    changed = [
        state(count + number, chance.randrange(count), may_end=True)
        for number in range(CHANGED * BATCH)
    ]
    return _cut(new), _cut(changed)


def _cut(states: Sequence[State]) -> list[SinkBatch]:
    return [batch_of(*states[at : at + BATCH]) for at in range(0, len(states), BATCH)]


async def measure(kind: str, target: Target) -> None:
    new, changed = batches()
    sink = target.make()
    await sink.open(SHAPE)
    try:
        rates = [await _rate(sink, [new]), await _rate(sink, [changed[: CHANGED // 2]])]
        rest = changed[CHANGED // 2 :]
        rates.append(await _rate(sink, [rest[shard::SHARDS] for shard in range(SHARDS)]))
    finally:
        await sink.close()
    print(f"{kind:12}" + "".join(f"{rate:>22}" for rate in rates), flush=True)  # noqa: T201


async def _rate(sink: AnySink, shards: Sequence[Sequence[SinkBatch]]) -> str:
    async def apply(batches: Sequence[SinkBatch]) -> None:
        for batch in batches:
            await sink.apply(batch)

    began_s, spent_s = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for batches in shards:
            tasks.create_task(apply(batches))
    took_s, spent_s = time.perf_counter() - began_s, time.process_time() - spent_s
    changes = sum(map(len, shards)) * BATCH
    return f"{changes / took_s:,.0f} ({spent_s / changes * 1e6:.0f} us)"


def main(kinds: Sequence[str]) -> None:
    """Measure each kind, all without names."""
    print(format_circumstances(circumstances("sink_analytics")))  # noqa: T201
    print(f"{'changes/s':12}{'new rows':>22}{'changes':>22}{f'{SHARDS} shards':>22}")  # noqa: T201
    for kind in kinds or [*MAKERS, "clickhouse"]:
        folder = Path(tempfile.mkdtemp(prefix="rowtide-bench-"))
        try:
            with ExitStack() as stack:
                if kind == "clickhouse":
                    cache = default_cache_dir({}, sys.platform)
                    server = stack.enter_context(Clickhouse(folder, cache))
                    target = clickhouse_target(server, "rows")
                else:
                    target = MAKERS[kind](folder)
                asyncio.run(measure(kind, target))
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
