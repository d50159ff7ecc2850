"""The tasks of one life of a slot: from its opening until something fails.

A life that ends accepts no more tasks, while its tasks are cancelled. A request made
while the slot closes (a change of the catalog, a shard to open) fails like one to a
closed slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from rowtide.core.values.errors import Unavailable

__all__ = ["LifeTasks"]

T = TypeVar("T")


class LifeTasks(asyncio.TaskGroup):
    """The tasks of one life of a slot. Raises ``Unavailable`` for a task that comes as it ends."""

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        try:
            return super().create_task(coro, name=name, context=context)
        except RuntimeError as error:
            coro.close()
            raise Unavailable("The partition is not available.") from error
