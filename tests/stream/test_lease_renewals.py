"""A renewal counts here only where it counts for everybody else: at the offset that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rowtide.core.lease import RENEW
from rowtide.stream.lease_keeper import LeaseKeeper, LeaseSettings
from rowtide.stream.log_cluster import Appends, LogCluster
from tests.contract.memory_log import MemoryLog

SLOT, LEASE_S = 0, 1.0


class Cluster:
    """One lease partition, in memory. ``late`` lands, and is read, before the next renewals do."""

    def __init__(self) -> None:
        self.partition = MemoryLog()
        self.late: bytes | None = None
        self.keeper: LeaseKeeper

    def log(self, _topic: str, _partition: int) -> MemoryLog:
        return self.partition.twin()

    async def append_many(self, items: Appends, *, deadline_s: float) -> Sequence[int]:
        if self.late is not None:
            await self.partition.append([(b"", self.late)], deadline_s=deadline_s)
            self.late = None
            assert await self.keeper.still_last(SLOT)
        return [await log.append(entries, deadline_s=deadline_s) for log, entries in items]


async def test_a_renewal_behind_one_that_landed_late_does_not_lengthen_the_lease() -> None:
    cluster, now_s = Cluster(), [10.0]
    keeper = cluster.keeper = LeaseKeeper(
        cast(LogCluster, cluster),
        "leases",
        owner=b"ownerid1",
        address="here:1",
        dead=(),
        settings=LeaseSettings(LEASE_S),
        clock_s=lambda: now_s[0],
    )
    await keeper.claim(SLOT)
    late = keeper._record(keeper._held[SLOT], RENEW)
    await keeper.renew()  # It takes the place that the one which is late has named.
    cluster.late = late
    now_s[0] += LEASE_S * 0.9
    await keeper.renew()
    now_s[0] += LEASE_S * 0.9
    assert not keeper.readable(SLOT), "no reader of the leases takes the last renewal for one"
    await keeper.renew()
    assert keeper.readable(SLOT)
