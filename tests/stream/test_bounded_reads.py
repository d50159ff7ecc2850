"""A read that allows for staleness fails for no reason for which the same strong read would not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from rowtide.core.errors import Unavailable
from rowtide.core.limits import Limits
from rowtide.stream.catalog.owner import CatalogOwner
from rowtide.stream.measures.counts import Counts
from rowtide.stream.operations.directory import Directory
from rowtide.stream.routing.bounded_reads import OPERATIONS, BoundedReads
from rowtide.stream.slots.standby import Standby
from tests.contract.memory_log import MemoryLog
from tests.stream.test_routing import ANN


class LeaderlessLog(MemoryLog):
    """The catalog's log while its partition has no leader. ``asked`` is what its end is told by."""

    asked: Callable[[], Awaitable[None]]

    async def bounds(self) -> tuple[int, int]:
        await self.asked()
        return await super().bounds()


async def refused() -> None:
    raise Unavailable("no leader")


async def silent() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("asked", [refused, silent])
async def test_while_the_catalog_cannot_be_read_the_owner_is_asked(
    asked: Callable[[], Awaitable[None]],
) -> None:
    log = LeaderlessLog()
    log.asked = asked
    catalog = CatalogOwner(log, log, owner=b"ownerid1", clock_us=lambda: 1)
    counts = Counts()
    directory = Directory(catalog.catalog, {}, Limits(), lambda: 1)
    standbys = {1: cast(Standby, None)}
    reads = BoundedReads(directory, {}, standbys, catalog, counts)
    bounded = reads.handlers(dict.fromkeys(OPERATIONS, lambda _identity, _body: b"strong"))
    async with asyncio.timeout(5):
        answer = bounded["GetRow"](ANN, b"", b"1000")
        assert not isinstance(answer, bytes)
        assert await answer == b"strong"
    assert counts.bounded_owner == 1
