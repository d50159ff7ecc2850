"""Reads one dashboard for all of its viewers.

A reader looks again and again whether something has changed (``number_reading.py``), with pauses
that are longer where a look takes longer. The console's own key reads. Whether a viewer may see the
numbers is decided elsewhere (``dashboard_access.py``). Without viewers nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from rowtide.client.endpoint import Endpoint
from rowtide.console.numbers.number_reading import NumberReading
from rowtide.console.numbers.shown_numbers import ShownNumbers
from rowtide.console.web.refusals import RequestRefused
from rowtide.core.values.errors import StoreError
from rowtide.dashboards.fold.state_bytes import CorruptState

__all__ = ["DashboardReader"]

logger = logging.getLogger(__name__)

PAUSE_S_MIN, PAUSE_S_MAX = 0.015, 1.0
PAUSES = 2.0
"""A pause is so many times as long as the read before it: a large dashboard is read less often."""
IDLE_S, IDLE_PAUSE_S = 30.0, 0.1
"""After such a time without a change, the reader looks less often."""
RETRY_S = 0.5
LINGER_S = 60.0
"""A reader without viewers ends after this time."""


class DashboardReader:
    """Keeps ``shown`` up to date while it has viewers.

    ``problem`` is the last failure, None while reads succeed; the numbers stay. ``answered_s`` is
    the time of the last read that succeeded. ``hidden`` has pairs of table and column whose values
    must not leave the console.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        hidden: frozenset[tuple[str, str]],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.shown = ShownNumbers()
        self.problem: StoreError | RequestRefused | None = None
        self.answered_s = now_s()
        self.viewers = 0
        self._reading = NumberReading(endpoint, name, hidden, now_s)
        self._now_s = now_s
        self._begun = self._ended = 0
        """Looks are counted from 1."""
        self._looked, self._news = asyncio.Event(), asyncio.Event()
        self._wanted, self._hurry = asyncio.Event(), asyncio.Event()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint with the console's own key."""
        return self._reading.endpoint

    # For viewers.

    def open(self) -> None:
        """Count a viewer."""
        self.viewers += 1
        self._wanted.set()

    def close(self) -> None:
        """Forget a viewer."""
        self.viewers -= 1
        if not self.viewers:
            self._wanted.clear()
            self._reading.forget_times()

    async def first(self) -> ShownNumbers:
        """Return the numbers of a look that began after the call. Raises why there are none."""
        wanted = self._begun + 1
        self._hurry.set()
        while self._ended < wanted:
            await self._looked.wait()
        if self.problem is not None:
            raise self.problem
        return self.shown

    async def wait(self, version: int, within_s: float) -> None:
        """Return when numbers are later than ``version``, a problem begins, or the time is over."""
        if self.shown.version > version:
            return
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            pass

    # Reading.

    async def run(self) -> None:
        """Read until no viewer has come for a while."""
        while await self._has_viewers():
            began_s = self._now_s()
            self._begun += 1
            had_problem = self.problem is not None
            is_new = await self._look_once()
            self._ended = self._begun
            self._looked.set()
            self._looked = asyncio.Event()
            if is_new or had_problem != (self.problem is not None):
                self._news.set()
                self._news = asyncio.Event()
            await self._pause(self._now_s() - began_s)

    async def _has_viewers(self) -> bool:
        if not self._wanted.is_set():
            try:
                async with asyncio.timeout(LINGER_S):
                    await self._wanted.wait()
            except TimeoutError:
                return self._wanted.is_set()
        return True

    async def _look_once(self) -> bool:
        """Read what has changed, or note the problem. True if the numbers are other ones."""
        try:
            found = await self._reading.look()
            is_new = found is not None and self.shown.show(*found)
        except (StoreError, RequestRefused) as error:
            self._note(error)
        except CorruptState as error:
            self._note(
                RequestRefused(500, "dashboards.corrupt", name=self._reading.name, reason=error)
            )
        else:
            self.problem, self.answered_s = None, self._now_s()
            return is_new
        return False

    def _note(self, problem: StoreError | RequestRefused) -> None:
        if self.problem is None:
            logger.info("dashboard %s cannot be read now: %s", self._reading.name, problem)
        self.problem = problem

    async def _pause(self, read_s: float) -> None:
        least_s = IDLE_PAUSE_S if self._now_s() - self._reading.moved_s > IDLE_S else PAUSE_S_MIN
        pause_s = min(PAUSE_S_MAX, max(least_s, PAUSES * read_s))
        try:
            async with asyncio.timeout(RETRY_S if self.problem is not None else pause_s):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()
