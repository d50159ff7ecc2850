"""Work that many ask for at once: done once for all who asked before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["SharedWork"]


class SharedWork:
    """One kind of work, of which one is done at a time. What it finds out, it notes itself."""

    def __init__(self) -> None:
        self._begun = 0
        self._done = 0
        """The number of the last one that did not fail."""
        self._turn = asyncio.Lock()

    async def since(self, work: Callable[[], Awaitable[None]]) -> None:
        """Return once ``work`` was done that began after this call. Raises what ours raises."""
        before = self._begun
        async with self._turn:
            if self._done > before:
                return
            self._begun += 1
            number = self._begun
            await work()
            self._done = number
