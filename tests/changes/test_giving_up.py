"""A shard that is read to its end stays so, whatever waits for its turn meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowtide.core.errors import Unavailable
from rowtide.stream.change_leases import Lease, MemoryLeases
from rowtide.stream.change_source import ChangePage, RowPage, SourceShard
from rowtide.stream.change_worker import Batch, FollowerSettings
from rowtide.stream.shard_follower import ShardFollower

LEASE = Lease("s1", counter=1, owner="me", position="rt1:s1:1:0")


class EndedShard:
    """A source of one shard, which has ended."""

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        return 0

    async def shards(self) -> list[SourceShard]:
        return [SourceShard("s1", (), b"", b"")]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return LEASE.position

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        return ChangePage([], None, True)

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        raise Unavailable

    async def finished(self, consumer: str, positions: Sequence[str]) -> None:
        pass


class SlowLeases(MemoryLeases):
    """Leases whose changes take until ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def change(self, old: Lease, new: Lease) -> Lease:
        """Replace a row once it may be."""
        self.asked.set()
        await self.go.wait()
        return await super().change(old, new)


async def test_a_renewal_that_waits_does_not_take_back_what_was_given_up() -> None:
    """The shard counted as not read again, and its last changes came twice."""
    leases = SlowLeases()
    await leases.create(LEASE)

    async def none(batch: Batch) -> None:
        raise AssertionError("nothing is there to be handled")

    follower = ShardFollower(
        LEASE, EndedShard(), leases, none, FollowerSettings(), leased_s=0.0, clock=lambda: 0.0
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run())
        await leases.asked.wait()
        tasks.create_task(follower.renew())
        await asyncio.sleep(0)
        leases.go.set()
    row = (await leases.all())["s1"]
    assert (row.owner, row.ended, row.counter) == ("", True, 2)
    assert follower.given_up
