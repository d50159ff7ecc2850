"""What the tests of timelines share: a client, a table of timelines, and reads as lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

from rowtide.client import AsyncClient, Timelines, TimelineSchema

__all__ = ["collect", "run", "take"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def run(
    access: dict[str, Any],
    test: Callable[[Timelines], Awaitable[Result]],
    schema: TimelineSchema | None = None,
) -> Result:
    """Return what ``test`` returns for the timelines of a new table."""

    async def run_test() -> Result:
        async with AsyncClient(**access) as client:
            timelines = Timelines(client, schema or TimelineSchema("im_store", lists=("tags",)))
            await timelines.create()
            return await test(timelines)

    return asyncio.run(run_test())


async def collect(items: AsyncIterator[Item]) -> list[Item]:
    """Return all items."""
    return [item async for item in items]


async def take(items: AsyncIterator[Item], count: int) -> list[Item]:
    """Return the first items of an iterator that does not end."""
    found: list[Item] = []
    async with asyncio.timeout(60), aclosing(cast("Any", items)):
        async for item in items:
            found.append(item)
            if len(found) == count:
                break
    return found
