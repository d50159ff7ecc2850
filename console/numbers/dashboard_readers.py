"""The readers of dashboards that have viewers, one for each dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from rowtide.client.endpoint import Endpoint
from rowtide.console.numbers.dashboard_reader import DashboardReader
from rowtide.console.web.refusals import RequestRefused

__all__ = ["READERS", "DashboardReaders"]

VIEWERS_MAX = 2000
RETRY_AFTER_S = 5


class DashboardReaders:
    """Starts a reader with its first viewer. ``make_endpoint`` has the console's own key."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        make_endpoint: Callable[[str], Endpoint],
        hidden: frozenset[tuple[str, str]],
        *,
        viewers_max: int = VIEWERS_MAX,
    ) -> None:
        self._tasks = tasks
        self._make_endpoint = make_endpoint
        self._hidden = hidden
        self._viewers_max = viewers_max
        self._readers: dict[tuple[str, str], DashboardReader] = {}
        self._places: dict[str, int] = {}

    @contextmanager
    def view(self, instance: str, name: str) -> Iterator[DashboardReader]:
        """Yield the reader of a dashboard, which runs while it is viewed."""
        key = instance.lower(), name
        reader = self._readers.get(key)
        if reader is None:
            reader = DashboardReader(self._make_endpoint(instance), name, self._hidden)
            self._readers[key] = reader
            reader.open()
            self._tasks.create_task(self._run(key, reader), name=f"dashboard {name}")
        else:
            reader.open()
        try:
            yield reader
        finally:
            reader.close()

    async def _run(self, key: tuple[str, str], reader: DashboardReader) -> None:
        await reader.run()
        del self._readers[key]

    @contextmanager
    def follow(
        self, instance: str, name: str, *, owner: str, places_max: int
    ) -> Iterator[DashboardReader]:
        """Yield a reader for a viewer that stays. Raises ``RequestRefused`` beyond the limits."""
        if sum(self._places.values()) >= self._viewers_max:
            limit = self._viewers_max
            raise RequestRefused(503, "feed.full", retry_after_s=RETRY_AFTER_S, limit=limit)
        if self._places.get(owner, 0) >= places_max:
            raise RequestRefused(
                429, "feed.session_full", retry_after_s=RETRY_AFTER_S, limit=places_max
            )
        self._places[owner] = self._places.get(owner, 0) + 1
        try:
            with self.view(instance, name) as reader:
                yield reader
        finally:
            self._places[owner] -= 1
            if not self._places[owner]:
                del self._places[owner]


READERS = web.AppKey("READERS", DashboardReaders)
