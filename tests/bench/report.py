"""The results beside their bars, as a Markdown table or as JSON.

A bar is passed when the value is at least it, or for times and sizes at most it. Latencies and
CPU are reported for every kind of call, and judged only where a bar says so.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

__all__ = ["Result", "as_json", "as_markdown", "percentile"]


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked for: the bar that must be passed, and the one that is aimed at."""

    first: float
    high: float
    smaller_is_better: bool = False


# The rates are per second at 64 connections, one worker, embedded broker with fsync, stream on.
BARS = {
    "console ready after the worker": Bar(1, 0.5, smaller_is_better=True),
    "first page, empty cache": Bar(120, 80, smaller_is_better=True),
    "page of health, p50": Bar(150, 60, smaller_is_better=True),
    "page of first rows, p50": Bar(150, 60, smaller_is_better=True),
    "page of last rows, p50": Bar(150, 60, smaller_is_better=True),
    "page of next rows at the end, p50": Bar(150, 60, smaller_is_better=True),
    "console memory, idle": Bar(70, 55, smaller_is_better=True),
    "console memory, 500 sampled viewers": Bar(200, 120, smaller_is_better=True),
    "put answered -> viewer, mode=sampled, p50": Bar(40, 25, smaller_is_better=True),
    "put answered -> viewer, mode=sampled, p99": Bar(100, 60, smaller_is_better=True),
    "first page, empty cache, largest paint": Bar(1, 0.5, smaller_is_better=True),
    "heap of the tab": Bar(100, 60, smaller_is_better=True),
    "longest task of the tab": Bar(100, 50, smaller_is_better=True),
    "put answered -> painted in the page, p50": Bar(40, 25, smaller_is_better=True),
    "put answered -> painted in the page, p99": Bar(100, 60, smaller_is_better=True),
    "write rate lost, 500 sampled viewers": Bar(10, 5, smaller_is_better=True),
    "write rate lost, 50 exact viewers": Bar(10, 5, smaller_is_better=True),
    "write rate lost, 2,000 viewers of one key each": Bar(10, 5, smaller_is_better=True),
    "500 viewers back after kill -9": Bar(5, 3, smaller_is_better=True),
    "PutRow": Bar(5_000, 12_000),
    "GetRow": Bar(8_000, 18_000),
    "BatchWriteRow(200), rows": Bar(15_000, 35_000),
    "GetRange, rows": Bar(40_000, 120_000),
    "answered -> in the stream, p50": Bar(5.0, 1.0, smaller_is_better=True),
    "answered -> in the stream, p99": Bar(float("inf"), 5.0, smaller_is_better=True),
    "stream drained, records": Bar(40_000, 100_000),
    "changes from Kafka, counted": Bar(100_000, 100_000),
    "answered -> reader on Kafka, p50": Bar(3.0, 3.0, smaller_is_better=True),
    "MariaDB snapshot, into rowtide": Bar(25_000, 53_000),
    "binlog, one statement, into rowtide": Bar(15_000, 50_000),
    "binlog, single rows, into rowtide": Bar(15_000, 50_000),
    "MariaDB -> read in rowtide, p50": Bar(50.0, 5.0, smaller_is_better=True),
    "search, p50": Bar(10, 4, smaller_is_better=True),
    "write -> found, p50": Bar(50, 30, smaller_is_better=True),
    "cold rebuild of 1 M rows": Bar(15.0, 4.0, smaller_is_better=True),
    "timeline store at half of the highest rate, p50": Bar(3, 1.5, smaller_is_better=True),
    "timeline store at half of the highest rate, p99": Bar(15, 6, smaller_is_better=True),
    "timeline store_many(100), messages": Bar(5_000, 12_000),
    "timeline send, messages": Bar(1_000, 2_000),
    "fan-out, groups of 50, inbox rows": Bar(10_000, 20_000),
    "fan-out, message answered -> in the inbox, p50": Bar(20, 8, smaller_is_better=True),
    "fan-out, message answered -> in the inbox, p99": Bar(100, 40, smaller_is_better=True),
    "newest 30 of a timeline of 1,000,000, p50": Bar(5, 2, smaller_is_better=True),
    "conversations of a user with 50, p50": Bar(60, 25, smaller_is_better=True),
    "timeline follow, answered -> on the other device, p50": Bar(5, 2, smaller_is_better=True),
    "timeline follow, answered -> on the other device, p99": Bar(50, 20, smaller_is_better=True),
    "put answered -> number of a dashboard, p50": Bar(80, 50, smaller_is_better=True),
    "put answered -> number of a dashboard, p99": Bar(150, 100, smaller_is_better=True),
    "put answered -> painted in a dashboard, p50": Bar(80, 50, smaller_is_better=True),
    "put answered -> painted in a dashboard, p99": Bar(150, 100, smaller_is_better=True),
    "dashboard of 3 panels at 5,000 changes/s, its process": Bar(40, 25, smaller_is_better=True),
    "dashboard of 3 panels at 5,000 changes/s, the worker": Bar(20, 10, smaller_is_better=True),
    "dashboard of 3 panels, catching up": Bar(20_000, 35_000),
    "dashboard moves after kill -9": Bar(4, 3, smaller_is_better=True),
    "up, warm": Bar(8.0, 8.0, smaller_is_better=True),
    "worker, idle": Bar(150.0, 150.0, smaller_is_better=True),
}


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement; ``calls_s`` are the latencies of single calls, in seconds."""

    name: str
    value: float
    unit: str
    calls_s: Sequence[float] = ()
    cpu_us: float | None = None
    remark: str = ""

    @property
    def passes(self) -> bool | None:
        """Whether the first bar is passed; None without one."""
        bar = BARS.get(self.name)
        if bar is None:
            return None
        return self.value <= bar.first if bar.smaller_is_better else self.value >= bar.first


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that ``percent`` of the values do not exceed."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def _number(value: float) -> str:
    if value == float("inf"):
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def as_markdown(results: Sequence[Result]) -> str:
    """Return the table."""
    lines = [
        "| measurement | result | first bar | high bar | p50 | p99 | server CPU each | remark |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for result in results:
        bar = BARS.get(result.name)
        verdict = {True: "", False: " **below**", None: ""}[result.passes]
        latencies = [
            f"{percentile(result.calls_s, percent) * 1000:.2f} ms" if result.calls_s else ""
            for percent in (50, 99)
        ]
        cells = [
            result.name,
            f"{_number(result.value)} {result.unit}{verdict}",
            *([_number(bar.first), _number(bar.high)] if bar else ["", ""]),
            *latencies,
            "" if result.cpu_us is None else f"{result.cpu_us:.0f} us",
            result.remark,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def as_json(results: Sequence[Result], about: dict[str, str]) -> str:
    """Return everything for machines; of the latencies only p50 and p99, in seconds."""
    documents = []
    for result in results:
        document = asdict(result)
        calls = document.pop("calls_s")
        if calls:
            document |= {"p50_s": percentile(calls, 50), "p99_s": percentile(calls, 99)}
        documents.append(document | {"passes": result.passes})
    return json.dumps({"about": about, "results": documents}, indent=2)
