"""Work that runs at most once at a time, in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["SingleTask"]


class SingleTask:
    """At most one running task. Its work does everything that is due at its start."""

    def __init__(self) -> None:
        self._started: list[asyncio.Task[None]] = []
        """The task that was started last; empty before the first."""

    def start(
        self, work: Callable[[], Coroutine[Any, Any, None]], tasks: asyncio.TaskGroup, name: str
    ) -> None:
        """Start ``work`` as a task in ``tasks``, unless it already runs."""
        if all(task.done() for task in self._started):
            self._started = [tasks.create_task(work(), name=name)]

    def cancel(self) -> None:
        """Cancel the task if it runs."""
        for task in self._started:
            task.cancel()
