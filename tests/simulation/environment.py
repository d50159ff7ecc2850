"""What a simulated worker rests on in place of Kafka's group, RocksDB and the machine's clocks.

A ``Machine`` survives the processes that run on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rowtide.core.values.limits import Limits
from rowtide.stream.cluster.backing import Member
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.measures.clock import MachineClock
from rowtide.stream.measures.counts import Counts
from rowtide.stream.routing.introduction import Credentials
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.failures import StoreBehind
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_links import StandbyLinks
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.slot.upkeep.reclaimer import ReclaimSettings
from rowtide.stream.worker.ownership import Clocks, Environment, Stores
from rowtide.stream.worker.worker_config import WorkerConfig
from tests.simulation.group import SimulatedMembership
from tests.simulation.memory_rows import Disk, MemoryRows
from tests.simulation.tables import INSTANCE

__all__ = ["Machine", "SimulatedSlot", "config_of", "environment_of"]

EPOCH_US = 1_700_000_000_000_000
NO_PATH = Path("/nonexistent/rows")
SETTINGS = SlotSettings(flush_s=5.0, trim_s=20.0, reclaim=ReclaimSettings(pause_s=1e9))


@dataclass(slots=True)
class Wheel:
    """A worker's clocks, which survive its processes. ``rate`` is that of the steady one."""

    rate: float = 1.0
    skew_us: int = 0

    def wall_us(self) -> int:
        """Return Unix microseconds, which may go back."""
        return EPOCH_US + int(asyncio.get_running_loop().time() * 1_000_000) + self.skew_us

    def lease_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return asyncio.get_running_loop().time() * self.rate


class WheelClock(MachineClock):
    """The time of day on a wheel. ``loop_s`` gives seconds that never go back."""

    def __init__(self, wheel: Wheel, loop_s: Callable[[], float]) -> None:
        self._wheel = wheel
        self._loop_s = loop_s

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return self._wheel.wall_us()

    def unix_s(self) -> float:
        """Return Unix seconds."""
        return self._wheel.wall_us() / 1_000_000

    def steady_s(self) -> float:
        """Return seconds that never go back."""
        return self._loop_s()


@dataclass(slots=True)
class Machine:
    """The parts of a worker that survive its processes: disks by slot, clocks, identity."""

    number: int
    disks: dict[int, Disk] = field(default_factory=dict)
    wheel: Wheel = field(default_factory=Wheel)
    former: frozenset[bytes] = frozenset()
    """Owner ids that are known to have ended: that of a directory of its own."""

    def disk(self, slot: int) -> Disk:
        """Return a slot's disk, an empty one where there was none."""
        return self.disks.setdefault(slot, Disk())


class SimulatedSlot(Slot):
    """A slot on a disk in memory."""

    disk: Disk

    def _open_rows(self) -> RowStore:
        return MemoryRows(self.disk)

    def _behind(self, why: str) -> StoreBehind:
        self.disk.empty()
        return super()._behind(why)


class SimulatedStandby(Standby):
    """A copy on a disk in memory."""

    disk: Disk

    def _open_rows(self) -> RowStore:
        return MemoryRows(self.disk)

    def _throw_away(self) -> None:
        super()._throw_away()
        self.disk.empty()


def config_of(wheel: Wheel) -> WorkerConfig:
    """Return what is set about a worker with these clocks."""
    return WorkerConfig(
        NO_PATH,
        Credentials("", "", INSTANCE),
        limits=Limits(source_slice_rows=2),
        slot=SETTINGS,
        clock=WheelClock(wheel, asyncio.get_running_loop().time),
    )


def environment_of(
    machine: Machine,
    cluster: TopicCluster,
    tails: Tails,
    hop: HopClient,
    new_membership: Callable[[Member], SimulatedMembership],
    *,
    copies: bool,
) -> Environment:
    """Return what ``assemble`` joins a worker's parts on; it keeps ``copies`` of slots or none."""

    def new_slot(number: int, around: Surroundings, links: SlotLinks) -> Slot:
        slot = SimulatedSlot(number, NO_PATH, around, links)
        slot.disk = machine.disk(number)
        return slot

    def new_standby(number: int, around: Surroundings, links: StandbyLinks) -> Standby:
        standby = SimulatedStandby(number, NO_PATH, around, links)
        standby.disk = machine.disk(number)
        return standby

    return Environment(
        cluster,
        tails,
        Clocks(machine.wheel.lease_s, asyncio.get_running_loop().time),
        Stores(new_slot, new_standby if copies else None),
        new_membership,
        Counts(),
        lambda _secret: hop,
    )
