"""The last hour of every table by the second, collected from all workers.

A worker keeps its figures in memory and loses them when it stops. The console asks for what is new
every second, and so still has them. Figures of several workers are joined when they are read:
requests and errors are added, p50 is the mean weighted by requests, and p99 is the greatest, since
the true one cannot be above it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.cluster.table_figures import (
    HOUR_S,
    TableFigures,
    TableSeconds,
    latency_us,
)
from rowtide.core.values.errors import StoreError

__all__ = ["HourOfTable", "JoinedSecond", "Sampler", "join_seconds"]

logger = logging.getLogger(__name__)

EVERY_S = 1.0
WORKERS_MAX = 64
"""Workers whose figures are kept; a worker that starts anew may have another address."""


class JoinedSecond(NamedTuple):
    """One second of one table on all workers; latencies in microseconds."""

    second: int
    requests: int
    errors: int
    p50_us: int
    p99_us: int


class HourOfTable:
    """The last hour of a table: its seconds with requests, oldest first; others had none.

    ``until_s`` is the last second that is known. The columns are in the order of the fields of
    ``JoinedSecond``: an hour has up to 3600 entries, and objects for them would take 20 ms.
    """

    def __init__(self, until_s: int, columns: Sequence[Sequence[int]]) -> None:
        self.until_s = until_s
        self.columns = columns

    def seconds(self) -> Iterator[JoinedSecond]:
        """Yield the entries."""
        return map(JoinedSecond._make, zip(*self.columns, strict=True))

    def last(self, span_s: int) -> JoinedSecond:
        """Return the sums and latencies of the last ``span_s`` seconds."""
        within = [s for s in self.seconds() if s.second > self.until_s - span_s]
        return join_seconds(self.until_s, within)


class Sampler:
    """Asks one worker, which asks the others, with the console's own key."""

    def __init__(
        self,
        calls: WorkerCalls,
        key: KeyPair,
        instance: str,
        *,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._calls = calls
        self._key = key
        self._instance = instance
        self._clock_s = clock_s
        self._workers: dict[str, TableFigures] = {}
        self._since: dict[str, int] = {}
        self.failure = ""
        """Why the last attempt failed; empty if it did not."""

    async def run(self) -> None:
        """Collect figures until cancelled."""
        while True:
            try:
                is_behind = await self.sample()
                self.failure = ""
            except StoreError as error:
                if not self.failure:
                    logger.warning("figures of tables cannot be read: %s", error.message)
                self.failure, is_behind = error.message, False
            await asyncio.sleep(0 if is_behind else EVERY_S)

    async def sample(self) -> bool:
        """Collect what is new; return True if a worker has more. Raises ``StoreError``."""
        asked = {"since": dict(self._since)}
        found = await self._calls.call(self._key, self._instance, "RowtideTableFigures", asked)
        is_behind = False
        for page in found["workers"]:
            address = page["address"]
            self._figures_of(address).add_page(page)
            self._since[address] = page["until_s"]
            is_behind = is_behind or page["until_s"] < page["now_s"]
        return is_behind

    @property
    def until_s(self) -> int:
        """Return the second up to which figures are complete; the present one before any."""
        now_s = int(self._clock_s()) - 1
        recent = [second for second in self._since.values() if second > now_s - HOUR_S]
        return max(recent, default=now_s)

    def tables(self, instance: str) -> list[str]:
        """Return the tables of an instance that had requests in the last hour, busiest first."""
        until = self.until_s
        requests: dict[str, int] = {}
        for figures in self._workers.values():
            for found, table, seconds in figures.tables():
                if found == instance and (count := seconds.requests(until - HOUR_S, until)):
                    requests[table] = requests.get(table, 0) + count
        return sorted(requests, key=lambda table: (-requests[table], table))

    def hour(self, instance: str, table: str, *, after: int = 0) -> HourOfTable:
        """Return the last hour of a table, or what of it is later than ``after``."""
        until = self.until_s
        after = max(after, until - HOUR_S)
        found = [known.of_table(instance, table) for known in self._workers.values()]
        parts = [_columns_of(one, after, until) for one in found if one.count(after, until)]
        if len(parts) == 1:
            return HourOfTable(until, parts[0])
        return HourOfTable(until, _join_columns(parts))

    def _figures_of(self, address: str) -> TableFigures:
        figures = self._workers.get(address)
        if figures is None:
            if len(self._workers) >= WORKERS_MAX:
                gone = min(self._workers, key=lambda known: self._since.get(known, 0))
                del self._workers[gone]
                self._since.pop(gone, None)
            figures = self._workers[address] = TableFigures()
        return figures


def _columns_of(figures: TableSeconds, after: int, until: int) -> list[Sequence[int]]:
    """Return the columns of one worker, latencies in microseconds."""
    seconds, requests, errors, p50, p99 = figures.columns(after, until)
    return [seconds, requests, errors, [*map(latency_us, p50)], [*map(latency_us, p99)]]


def _join_columns(parts: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Return the columns of several workers as one, by the rule at the top of this module."""
    first = min((part[0][0] for part in parts), default=0)
    size = max((part[0][-1] for part in parts), default=first - 1) - first + 1
    requests, errors, weighted, p99 = ([0] * size for _ in range(4))
    for part in parts:
        for second, of_requests, of_errors, of_p50, of_p99 in zip(*part, strict=True):
            at = second - first
            requests[at] += of_requests
            errors[at] += of_errors
            weighted[at] += of_p50 * of_requests
            p99[at] = max(p99[at], of_p99)
    busy = [at for at, count in enumerate(requests) if count]
    return [
        [first + at for at in busy],
        [requests[at] for at in busy],
        [errors[at] for at in busy],
        [weighted[at] // requests[at] for at in busy],
        [p99[at] for at in busy],
    ]


def join_seconds(second: int, entries: Iterable[JoinedSecond]) -> JoinedSecond:
    """Return several workers, or several seconds, as one; see the top of this module."""
    entries = list(entries)
    if len(entries) == 1:
        return JoinedSecond(second, *entries[0][1:])
    requests = sum(entry.requests for entry in entries)
    weighted = sum(entry.p50_us * entry.requests for entry in entries)
    return JoinedSecond(
        second,
        requests,
        sum(entry.errors for entry in entries),
        weighted // requests if requests else 0,
        max((entry.p99_us for entry in entries), default=0),
    )
