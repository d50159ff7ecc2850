"""Reads older pages of a table for all viewers that are behind: one read at a time.

Viewers that want nearby offsets share a page. The reader always reads the lowest offset that is
wanted of a shard first, so the page serves the others too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field

from rowtide.console.feed.page_ring import FeedPage
from rowtide.console.feed.stream_reading import RETRIED, StreamReading
from rowtide.core.values.errors import StoreError

__all__ = ["CatchUpReader"]

logger = logging.getLogger(__name__)

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""Pages that are kept for viewers who want them a moment later."""
RETRY_S = 0.5


@dataclass(slots=True)
class _WantedPage:
    """Viewers wait for the page at one offset."""

    event: asyncio.Event = field(default_factory=asyncio.Event)
    page: FeedPage | None = None
    failure: StoreError | None = None


class CatchUpReader:
    """The one reader of a table's older pages. ``reads`` counts what it asked the worker for."""

    def __init__(self, reading: StreamReading, *, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self.reads = 0
        self._reading = reading
        self._kept_bytes_max = kept_bytes_max
        self._kept: deque[FeedPage] = deque()
        self._kept_bytes = 0
        self._wanted: dict[str, dict[int, _WantedPage]] = {}
        self._wake = asyncio.Event()

    async def read(self, shard: str, offset: int) -> FeedPage:
        """Return a page that holds an offset. Raises ``Rejected``, as ``LogTrimmed``.

        It is empty if there is nothing at the offset yet. While the worker does not answer, this
        waits.
        """
        page = self._find(shard, offset)
        if page is not None:
            return page
        wanted = self._wanted.setdefault(shard, {}).setdefault(offset, _WantedPage())
        self._wake.set()
        await wanted.event.wait()
        if wanted.failure is not None:
            raise wanted.failure
        assert wanted.page is not None, "set with the event"
        return wanted.page

    async def run(self) -> None:
        """Read what is wanted, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                shard = next(iter(self._wanted))
                await self._read_lowest(shard, min(self._wanted[shard]))

    async def _read_lowest(self, shard: str, offset: int) -> None:
        page: FeedPage | None = None
        failure: StoreError | None = None
        try:
            self.reads += 1
            page = await self._reading.read(shard, offset)
        except RETRIED as error:
            logger.debug("catch-up of shard %s at %d: %s", shard, offset, error)
            await asyncio.sleep(RETRY_S)
            return
        except StoreError as error:
            failure = error
        if page is not None and page.records:
            self._keep(page)
        self._answer(shard, offset, page, failure)

    def _answer(
        self, shard: str, offset: int, page: FeedPage | None, failure: StoreError | None
    ) -> None:
        """Wake those who want this offset, or another one that the page holds."""
        wanted = self._wanted.pop(shard)
        for at in sorted(wanted):
            if at == offset or (page is not None and page.begin <= at < page.end):
                waiting = wanted.pop(at)
                waiting.page, waiting.failure = page, failure
                waiting.event.set()
        if wanted:
            # Behind the other shards: each gets its turn.
            self._wanted[shard] = wanted

    def _keep(self, page: FeedPage) -> None:
        self._kept.append(page)
        self._kept_bytes += page.measure()
        while self._kept_bytes > self._kept_bytes_max and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popleft().size

    def _find(self, shard: str, offset: int) -> FeedPage | None:
        for page in reversed(self._kept):
            if page.shard == shard and page.begin <= offset < page.end:
                return page
        return None
