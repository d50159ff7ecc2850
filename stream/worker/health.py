"""Reports to probes if this worker is alive, and if it is ready.

A worker is *alive* while its event loop turns, so that it can answer. It is *ready* under
these conditions: each of its slots is open and readable, or another worker still serves
it; a broker answered lately; the disk has room; and no drain has begun. The reports name
no address, no key and no table.

Times are seconds of ``time.monotonic``.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from rowtide.core.protocol.authentication import KNOWN_S_MAX
from rowtide.core.values.errors import Unavailable
from rowtide.stream.http.edge import Edge
from rowtide.stream.http.pages import PageAnswer, json_page
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.measures.counts import Counts
from rowtide.stream.measures.ticks import sleep_to_tick
from rowtide.stream.slot.slot import Slot

__all__ = ["Health"]

LATELY_S = 10.0
"""A broker without an answer for this long counts as away. Leases are renewed more often."""

ASK_AFTER_S = 3.0
"""A worker without slots renews no leases, so it calls the broker after this long."""

SAMPLE_S = 0.5
"""A wait that is seldom is found late, but each sample wakes an idle worker."""


class Health:
    """The health of one worker. ``slots`` are those that it serves; ``counts`` records
    its delays.
    """

    def __init__(
        self,
        edge: Edge,
        slots: Mapping[int, Slot],
        cluster: TopicCluster,
        *,
        data_dir: Path,
        free_bytes_min: int,
        counts: Counts,
        drained: Callable[[], bool] = lambda: False,
        catalog_lost: Callable[[], str] = str,
    ) -> None:
        self.drained = drained
        """True while this worker is drained: it takes no slots."""
        self._catalog_lost = catalog_lost
        self._edge = edge
        self._slots = slots
        self._cluster = cluster
        self._data_dir = data_dir
        self._free_bytes_min = free_bytes_min
        self._counts = counts

    async def live(self) -> PageAnswer:
        """Answer ``/healthz``."""
        return json_page(200, {"live": True})

    async def ready(self) -> PageAnswer:
        """Answer ``/readyz``."""
        reasons = self.reasons()
        if reasons:
            return json_page(503, {"ready": False, "reasons": reasons})
        return json_page(200, {"ready": True})

    def reasons(self) -> list[str]:
        """Return why this worker is not ready; empty if it is ready."""
        reasons: list[str] = []
        if self._edge.leaving:
            reasons.append("draining")
        elif self.drained():
            reasons.append("drained")
        if not self._edge.admitting:
            reasons.append("starting")
        if lost := self._catalog_lost():
            reasons.append(lost)
        for number, slot in sorted(self._slots.items()):
            if slot.is_served_elsewhere():
                continue
            if not slot.opened.is_set():
                why = slot.openings.why
                reasons.append(f"slot {number} is not open{': ' if why else ''}{why}")
            elif not slot.is_readable():
                reasons.append(f"slot {number} has no lease")
        age_s = self.broker_age_s
        if age_s is None:
            reasons.append("no broker has answered yet")
        elif age_s > LATELY_S:
            reasons.append(f"no broker has answered for {age_s:.0f} s")
        keys_age_s = self._edge.authenticator.age_s()
        if self._edge.admitting and keys_age_s > KNOWN_S_MAX:
            reasons.append(f"access keys were last read {keys_age_s:.0f} s ago")
        free = self.free_bytes
        if free < self._free_bytes_min:
            reasons.append(f"the disk has {free} bytes free, {self._free_bytes_min} are required")
        return reasons

    @property
    def broker_age_s(self) -> float | None:
        """How long ago a broker last answered; None if none ever did."""
        answered_s = self._cluster.answered_s
        return None if answered_s is None else time.monotonic() - answered_s

    @property
    def free_bytes(self) -> int:
        """Free bytes on the disk of the data directory."""
        return shutil.disk_usage(self._data_dir).free

    async def run(self) -> None:
        """Watch the event loop and the broker until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._measure_delay(), name="loop-delay")
            tasks.create_task(self._ask_broker(), name="broker-asked")

    async def _measure_delay(self) -> None:
        """Count how late the event loop wakes a task: every other task waits as long."""
        while True:
            due_s = time.monotonic() + SAMPLE_S
            await asyncio.sleep(SAMPLE_S)
            # The loop's timers have a resolution of about a millisecond, in both
            # directions.
            self._counts.loop_delay.add(max(0.0, time.monotonic() - due_s))

    async def _ask_broker(self) -> None:
        while True:
            age_s = self.broker_age_s
            if age_s is None or age_s > ASK_AFTER_S:
                with suppress(Unavailable):
                    await self._cluster.start()
            await sleep_to_tick(1.0)
