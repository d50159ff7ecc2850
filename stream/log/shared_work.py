"""Work for many callers: done once for all that called before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["SharedWork"]


class SharedWork:
    """One kind of work, of which one run goes at a time. The work stores its own result."""

    def __init__(self) -> None:
        self._begun = 0
        self._done = 0
        """The number of the last run that did not fail."""
        self._turn = asyncio.Lock()

    async def since(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for a run of ``work`` that began after this call. Raises our own run's error."""
        before = self._begun
        async with self._turn:
            if self._done > before:
                return
            self._begun += 1
            number = self._begun
            await work()
            self._done = number
