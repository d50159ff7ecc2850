"""Figures of tables from several workers: collected once, joined when they are read."""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.console.workers.sampler import HourOfTable, JoinedSecond, Sampler
from rowtide.core.cluster.table_figures import (
    HOUR_S,
    SecondFigures,
    TableFigures,
    latency_us,
)
from rowtide.core.values.errors import Unavailable
from tests.console.workers.scripted_calls import KEY, ScriptedCalls

NOW_S = 1_700_000_000
P50, P99 = 10, 20


class ClusterFigures:
    """Workers that count, and one that answers for them all, in pages."""

    def __init__(self, *addresses: str, entries_max: int = 1000) -> None:
        self.until = NOW_S
        self.figures = {address: TableFigures() for address in addresses}
        self.silent: set[str] = set()
        self.entries_max = entries_max
        self.calls = ScriptedCalls(RowtideTableFigures=self.answer)
        self.sampler = Sampler(self.calls, KEY, "demo", clock_s=lambda: float(self.until + 1))

    def count(self, address: str, second: int, *, requests: int = 1, p50: int = P50) -> None:
        figures = SecondFigures(second, requests, 0, p50, p50 + P99 - P50)
        self.figures[address].add("demo", "orders", figures)

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        pages = [
            {
                "address": address,
                "now_s": self.until,
                **figures.page(
                    asked["since"].get(address, 0), self.until, entries_max=self.entries_max
                ),
            }
            for address, figures in self.figures.items()
            if address not in self.silent
        ]
        return {"workers": pages, "silent": [{"address": address} for address in self.silent]}

    def hour(self) -> list[tuple[int, int]]:
        found = self.sampler.hour("demo", "orders")
        return [(entry.second, entry.requests) for entry in found.seconds()]


async def test_a_second_is_collected_once_however_often_is_asked() -> None:
    cluster = ClusterFigures("a:1")
    cluster.count("a:1", NOW_S - 1, requests=5)
    for _ in range(3):
        assert not await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S - 1, 5)]
    cluster.until += 2
    cluster.count("a:1", NOW_S + 1, requests=7)
    await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S - 1, 5), (NOW_S + 1, 7)]
    assert cluster.calls.asked[-1][1] == {"since": {"a:1": NOW_S}}
    assert cluster.sampler.tables("demo") == ["orders"]
    assert cluster.sampler.tables("other") == []


async def test_workers_are_joined_by_the_second() -> None:
    cluster = ClusterFigures("a:1", "b:1")
    cluster.count("a:1", NOW_S, requests=30, p50=10)
    cluster.count("b:1", NOW_S, requests=10, p50=14)
    await cluster.sampler.sample()
    [joined] = cluster.sampler.hour("demo", "orders").seconds()
    p50_us = (30 * latency_us(10) + 10 * latency_us(14)) // 40
    assert joined == JoinedSecond(NOW_S, 40, 0, p50_us, latency_us(24))


async def test_a_worker_that_was_silent_tells_later_what_was_missed() -> None:
    cluster = ClusterFigures("a:1", "b:1")
    await cluster.sampler.sample()
    cluster.silent = {"b:1"}
    cluster.until += 10
    cluster.count("a:1", NOW_S + 5)
    cluster.count("b:1", NOW_S + 5)
    await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S + 5, 1)]
    cluster.silent = set()
    await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S + 5, 2)]


async def test_figures_outlive_the_worker_that_counted_them() -> None:
    cluster = ClusterFigures("a:1")
    cluster.count("a:1", NOW_S)
    await cluster.sampler.sample()
    cluster.figures["a:1"] = TableFigures()
    cluster.until += 60
    cluster.count("a:1", cluster.until, requests=2)
    await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S, 1), (NOW_S + 60, 2)]


async def test_a_long_past_comes_in_pages() -> None:
    cluster = ClusterFigures("a:1", entries_max=500)
    for second in range(NOW_S - HOUR_S + 1, NOW_S + 1):
        cluster.count("a:1", second)
    while await cluster.sampler.sample():
        assert len(cluster.calls.asked) < 100
    assert len(cluster.hour()) == HOUR_S
    recent = cluster.sampler.hour("demo", "orders", after=NOW_S - 3)
    assert [entry.second for entry in recent.seconds()] == [NOW_S - 2, NOW_S - 1, NOW_S]


async def test_a_worker_that_does_not_answer_is_an_error_and_figures_stay() -> None:
    cluster = ClusterFigures("a:1")
    cluster.count("a:1", NOW_S)
    await cluster.sampler.sample()

    def fail(_: object) -> None:
        raise Unavailable("no worker")

    cluster.calls.answers["RowtideTableFigures"] = fail
    with pytest.raises(Unavailable):
        await cluster.sampler.sample()
    assert cluster.hour() == [(NOW_S, 1)]


def test_the_last_seconds_are_summed() -> None:
    seconds = [JoinedSecond(NOW_S - back, 10, 1, 100 * back, 1000 * back) for back in (3, 2, 1)]
    hour = HourOfTable(NOW_S, [*zip(*seconds, strict=True)])
    assert hour.last(3) == JoinedSecond(NOW_S, 20, 2, 150, 2000)
    assert hour.last(1) == JoinedSecond(NOW_S, 0, 0, 0, 0)
