"""The progress of each system, read once a second by a separate thread. Only for display.

Each transaction of the origin changes a counting row; rowtide's progress is the number in that row.
A sink lacks the records that its connectors have not read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from demo.replication.declarations import SINKS, connector_name
from demo.replication.origin import COUNTER, count_in
from demo.source import TABLES
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declarations import group_of
from rowtide.connectors.runtime.lag import Lag, measure_lag
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.core.values import key, variant
from rowtide.core.values.errors import StoreError
from rowtide.deploy.up import Ready

__all__ = ["Seen", "Watch"]

POLL_S = 1.0


class Seen(NamedTuple):
    """The last state. ``behind`` is by sink: records, or None while its rows are being read."""

    counted: int
    behind: Mapping[str, int | None]

    @property
    def is_caught_up(self) -> bool:
        """True if every sink has everything that rowtide has."""
        return bool(self.behind) and not any(b is None or b for b in self.behind.values())


class Watch:
    """Reads the progress until ``stop``."""

    def __init__(self, ready: Ready) -> None:
        self.seen = Seen(0, {})
        self._ready = ready
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()

    def until(
        self, holds: Callable[[Seen], bool], *, s_max: float, show: Callable[[], None]
    ) -> bool:
        """Wait until ``holds``, and show the state meanwhile. True if it was reached."""
        for _ in range(int(s_max / POLL_S)):
            if holds(self.seen):
                return True
            show()
            self._ended.wait(POLL_S)
        return holds(self.seen)

    def _run(self) -> None:
        asyncio.run(self._look())

    async def _look(self) -> None:
        async with Endpoint(**self._ready._asdict()) as endpoint:
            while not self._ended.is_set():
                try:
                    async with asyncio.timeout(10):
                        self.seen = await _read_progress(endpoint)
                except (StoreError, TimeoutError):
                    pass  # A process was killed; it is restarted.
                await asyncio.sleep(POLL_S)


async def _read_progress(endpoint: Endpoint) -> Seen:
    behind: dict[str, int | None] = {}
    for sink in SINKS:
        lags = [await _lag(endpoint, connector_name(sink, t.name), t.name) for t in TABLES]
        unread = any(lag.unread or not lag.begun for lag in lags)
        behind[sink] = None if unread else sum(lag.records for lag in lags)
    side = TableSide(ApiSource(endpoint, "airlines"))
    counter = key.encode([variant.encode(COUNTER)])
    row = (await side.look_up([counter])).get(counter, {})
    return Seen(count_in(str(row.get("name", ""))), behind)


async def _lag(endpoint: Endpoint, connector: str, table: str) -> Lag:
    return await measure_lag(ApiSource(endpoint, table), TableLeases(endpoint, group_of(connector)))
