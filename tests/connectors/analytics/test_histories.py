"""For any deliveries, in any order and with repetitions, a sink holds the newest row of
each key.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

from demo.servers.clickhouse import Clickhouse
from tests.connectors.analytics.facts import SHAPE, Delivery, Model, comparable, histories
from tests.connectors.analytics.targets import MAKERS, AnySink, Target, clickhouse_target
from tests.support.searches import examples

EXAMPLES = {
    "duckdb": examples(10, 25),
    "delta": examples(8, 15),
    "parquet": examples(10, 25),
    "clickhouse": examples(10, 25),
}
ALL = 1_000
# Every step of shrinking would open a new target: minutes for a smaller example.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@pytest.mark.parametrize("kind", [*MAKERS])
def test_a_sink_holds_the_newest_of_what_it_was_told(kind: str, tmp_path: Path) -> None:
    numbers = itertools.count()

    def target() -> Target:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return MAKERS[kind](folder)

    _hold(target, EXAMPLES[kind])


@pytest.mark.system
def test_clickhouse_holds_the_newest_of_what_it_was_told(clickhouse: Clickhouse) -> None:
    numbers = itertools.count()
    _hold(lambda: clickhouse_target(clickhouse, f"history{next(numbers)}"), EXAMPLES["clickhouse"])


def _hold(make: Callable[[], Target], count: int) -> None:
    @settings(max_examples=count, phases=PHASES)
    @given(history=histories())
    def holds(history: Sequence[Delivery]) -> None:
        asyncio.run(_tell(make(), history))

    holds()


async def _tell(target: Target, history: Sequence[Delivery]) -> None:
    model = Model()
    sinks = [await _open_sink(target) for _ in range(2 if target.several else 1)]
    try:
        for at, group in enumerate(_groups(history)):
            if group[0].reopened:
                which = at % len(sinks)
                await sinks[which].close()
                sinks[which] = await _open_sink(target)
            async with asyncio.TaskGroup() as tasks:
                for number, delivery in enumerate(group):
                    model.deliver(delivery.batch)
                    sink = sinks[(at + number) % len(sinks)]
                    tasks.create_task(_apply(sink, delivery))
        expected = model.living()
        for sink in sinks:
            held = await sink.read_rows(b"", b"", limit=ALL)
            assert comparable(held) == comparable(expected)
    finally:
        for sink in sinks:
            await sink.close()
    seen = target.keys_seen()
    keys = {row.key_bytes: row for row in expected}
    model_keys = [tuple(value for _, value in model.newest[key].key) for key in keys]
    assert sorted(map(repr, seen)) == sorted(map(repr, model_keys))


async def _apply(sink: AnySink, delivery: Delivery) -> None:
    assert await sink.apply(delivery.batch) == []


async def _open_sink(target: Target) -> AnySink:
    sink = target.make()
    await sink.open(SHAPE)
    return sink


def _groups(history: Sequence[Delivery]) -> list[list[Delivery]]:
    groups: list[list[Delivery]] = []
    for delivery in history:
        if groups and groups[-1][-1].together:
            groups[-1].append(delivery)
        else:
            groups.append([delivery])
    return groups
