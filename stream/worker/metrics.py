"""The page ``/metrics``: a worker's counters, in the Prometheus text format.

No request passes through here. A scrape reads the numbers and formats them in a thread,
so that it hardly blocks the event loop. ``docs/reference/metrics.md`` has names, units
and meanings; a test compares that page with the server.

The first scrape imports the library: it takes 40 ms and 3 MB, and most workers never need
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rowtide.stream.http.pages import PageAnswer
from rowtide.stream.measures.histogram import Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

__all__ = ["COUNTER", "GAUGE", "Family", "Metrics", "Sample", "histogram"]

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

PREFIX = "rowtide_"

BESIDE_S_MAX = 10.0
"""Metrics of the process beside this one expire after this long, because it may have ended."""


class Sample(NamedTuple):
    """One number, with the values of its family's labels."""

    labels: tuple[str, ...]
    value: float | Histogram


class Family(NamedTuple):
    """One metric: its name without ``rowtide_`` (and, of a counter, without ``_total``)."""

    kind: str
    name: str
    text: str
    labels: tuple[str, ...]
    samples: Sequence[Sample]


def histogram(name: str, text: str, counted: Histogram) -> Family:
    """Return the family of one distribution without labels."""
    return Family(HISTOGRAM, name, text, (), [Sample((), counted)])


class Metrics:
    """The page ``/metrics``. ``families`` reads every number; it is called in the event loop.

    ``of_process`` adds memory, CPU and files of the process. ``beside`` is a file to
    which a process beside this one writes its metrics; a file older than ``BESIDE_S_MAX``
    is ignored.
    """

    def __init__(
        self,
        families: Callable[[], Iterable[Family]],
        *,
        of_process: bool = True,
        beside: Path | None = None,
    ) -> None:
        self._families = families
        self._of_process = of_process
        self._beside = beside
        self._registry: CollectorRegistry | None = None
        self._read: list[Family] = []
        self._writing = asyncio.Lock()

    async def page(self) -> PageAnswer:
        """Answer ``/metrics``."""
        async with self._writing:
            self._read = list(self._families())
            return await asyncio.to_thread(self._page)

    def text(self) -> bytes:
        """Return the present numbers, without those of the file ``beside``."""
        self._read = list(self._families())
        return self._format()

    def _page(self) -> PageAnswer:
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

        text = self._format() + self._read_beside()
        return PageAnswer(200, CONTENT_TYPE_PLAIN_0_0_4.encode(), text)

    def _read_beside(self) -> bytes:
        try:
            if self._beside is None or time.time() - self._beside.stat().st_mtime > BESIDE_S_MAX:
                return b""
            return self._beside.read_bytes()
        except OSError:
            return b""

    def _format(self) -> bytes:
        from prometheus_client.exposition import generate_latest

        if self._registry is None:
            self._registry = self._new_registry()
        return generate_latest(self._registry)

    def _new_registry(self) -> CollectorRegistry:
        """Return our own registry: memory, CPU and files of the process, and our numbers."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        registry = CollectorRegistry(auto_describe=False)
        if self._of_process:
            ProcessCollector(registry=registry)
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers that were read last, in the library's classes."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for kind, name, text, labels, samples in self._read:
            if kind == HISTOGRAM:
                distribution = HistogramMetricFamily(PREFIX + name, text, labels=labels)
                for values, counted in samples:
                    assert isinstance(counted, Histogram), name
                    buckets = [(_format_bound(bound), n) for bound, n in counted.cumulative()]
                    distribution.add_metric(values, buckets, counted.seconds)
                yield distribution
                continue
            kind_of_family = CounterMetricFamily if kind == COUNTER else GaugeMetricFamily
            family = kind_of_family(PREFIX + name, text, labels=labels)
            for values, number in samples:
                assert not isinstance(number, Histogram), name
                family.add_metric(values, number)
            yield family


def _format_bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)
