"""What is broken while clients write, by name, and the schedule that a seed makes of it.

A strike hurts, waits, and heals: whoever follows finds every process running and every wire good.
A schedule is drawn before anything starts, so the same seed and fault give the same strikes; whom
they meet doing what depends on the machine.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from rowtide.deploy.kafka.broker import EmbeddedBroker
from tests.histories.cluster import Cluster, Member
from tests.histories.requests import TABLE
from tests.histories.wire import Wired
from tests.system.small_disk import Ballast
from tests.system.three_brokers import standing_still

__all__ = ["FAULTS", "Fault", "Strike", "draw_schedule"]


HOUR_S = 3600.0
BURST_S = 0.3
"""How long before it goes on a worker that stands still is sent requests."""


@dataclass(frozen=True, slots=True)
class Strike:
    """``fault`` on worker ``victim`` for ``hold_s``, ``gap_s`` after the former one has healed."""

    fault: str
    victim: int
    gap_s: float
    hold_s: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


class Fault(NamedTuple):
    """What a strike does, for how long, and what it needs of the cluster.

    ``planned`` is what operators do every day: shown with each strike. No pause is held to a bound.
    """

    do: Callable[[Cluster, Strike], Awaitable[None]]
    hold_s: tuple[float, float]
    planned: bool = False
    needs: str = ""


async def kill_worker(cluster: Cluster, strike: Strike) -> None:
    """A worker is killed, and comes back on its disk."""
    victim = cluster.members[strike.victim]
    await victim.kill()
    await asyncio.sleep(strike.hold_s)
    await victim.start()


async def pause_worker(cluster: Cluster, strike: Strike) -> None:
    """A worker stands still, and goes on as if nothing had been: into requests that wait for it."""
    victim = cluster.members[strike.victim]
    assert cluster.load is not None, "strikes come under load"
    victim.signal(signal.SIGSTOP)
    victim.running = False
    try:
        await asyncio.sleep(strike.hold_s - BURST_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cluster.load.burst(strike.victim), name="burst")
            await asyncio.sleep(BURST_S)
            victim.signal(signal.SIGCONT)
    finally:
        victim.signal(signal.SIGCONT)
        victim.running = True


async def rolling_restart(cluster: Cluster, strike: Strike) -> None:
    """Each worker in turn drains, ends, and is started again."""
    for victim in _from(cluster, strike.victim):
        await victim.stop()
        await asyncio.sleep(strike.hold_s)
        await victim.start()
        await cluster.wait_until_served(divided=True)


async def join_and_leave(cluster: Cluster, strike: Strike) -> None:
    """One more worker comes, takes its share, and leaves again."""
    guest = await cluster.guest()
    await guest.start()
    await cluster.wait_until_served(divided=True)
    await asyncio.sleep(strike.hold_s)
    await guest.stop()


async def restart_broker(cluster: Cluster, strike: Strike) -> None:
    """The broker, or one of three, is killed, and started at once or later."""
    victim = _broker(cluster, strike)
    victim.kill()
    await asyncio.sleep(strike.hold_s)
    await asyncio.to_thread(victim.restart)


async def restart_brokers(cluster: Cluster, strike: Strike) -> None:
    """All brokers are killed at once, and started at once: one alone does not answer."""
    for broker in cluster.brokers:
        broker.kill()
    await asyncio.sleep(strike.hold_s)
    async with asyncio.TaskGroup() as starts:
        for broker in cluster.brokers:
            starts.create_task(asyncio.to_thread(broker.restart), name="start")


async def pause_broker(cluster: Cluster, strike: Strike) -> None:
    """The broker, or one of three, stands still: nothing it was sent is answered or lost."""
    with standing_still(_broker(cluster, strike)):
        await asyncio.sleep(strike.hold_s)


def _broker(cluster: Cluster, strike: Strike) -> EmbeddedBroker:
    return cluster.brokers[strike.victim % len(cluster.brokers)]


async def isolate_worker(cluster: Cluster, strike: Strike) -> None:
    """A worker reaches no broker: connections are refused."""
    await _wire(strike, [cluster.members[strike.victim]], down=True)


async def part_from_broker(cluster: Cluster, strike: Strike) -> None:
    """Two workers reach one of the brokers no more; the brokers reach each other."""
    victims = _from(cluster, strike.victim)[:2]
    await _wire(strike, victims, without=strike.victim % len(cluster.brokers))


async def part_brokers(cluster: Cluster, strike: Strike) -> None:
    """A broker and the others reach each other no more; every worker reaches all of them."""
    await _cut_off(cluster, strike)


async def mute_broker(cluster: Cluster, strike: Strike) -> None:
    """What a broker sends the others is lost; it hears them, and every worker reaches all."""
    await _cut_off(cluster, strike, deaf=False)


async def deafen_broker(cluster: Cluster, strike: Strike) -> None:
    """What the other brokers send one is lost; they hear it, and every worker reaches all."""
    await _cut_off(cluster, strike, mute=False)


async def _cut_off(cluster: Cluster, strike: Strike, **ways: bool) -> None:
    assert cluster.hosts is not None, "a fault that needs hosts"
    with cluster.hosts.cut_off(strike.victim % len(cluster.brokers), **ways):
        await asyncio.sleep(strike.hold_s)


async def stall_wire(cluster: Cluster, strike: Strike) -> None:
    """A worker's connections to the broker stay, and nothing passes."""
    await _wire(strike, [cluster.members[strike.victim]], stalled=True)


async def delay_requests(cluster: Cluster, strike: Strike) -> None:
    """Every request of every worker to the broker takes longer, each by another time."""
    await _wire(strike, cluster.members, delay_s=0.1)


async def stall_hops(cluster: Cluster, strike: Strike) -> None:
    """Nothing passes between a worker and the others, which all reach the broker."""
    await _hops(strike, [cluster.members[strike.victim]], stalled=True)


async def part_workers(cluster: Cluster, strike: Strike) -> None:
    """No worker reaches another; all reach the broker."""
    await _hops(strike, cluster.members, down=True)


async def delay_hops(cluster: Cluster, strike: Strike) -> None:
    """What passes between workers takes longer, each time by another time."""
    await _hops(strike, cluster.members, delay_s=0.05)


async def cut_hops(cluster: Cluster, strike: Strike) -> None:
    """Connections between workers end in the midst of what passes, or right behind it."""
    await _hops(strike, cluster.members, cut=0.02, mute=0.02)


async def cut_requests(cluster: Cluster, strike: Strike) -> None:
    """Connections to the broker end before a request, or between a request and its answer."""
    await _wire(strike, cluster.members, cut=0.02, mute=0.02)


async def late_produce(cluster: Cluster, strike: Strike) -> None:
    """Produce requests land after their senders have given them up."""
    await _wire(strike, cluster.members, late=0.03)


async def slow_disk(cluster: Cluster, strike: Strike) -> None:
    """Every flush of the broker to its disk takes 0.05 s longer."""
    assert cluster.broker_shim is not None, "a fault that needs a shim"
    cluster.broker_shim.slow_disk(0.05)
    try:
        await asyncio.sleep(strike.hold_s)
    finally:
        cluster.broker_shim.slow_disk(0.0)


async def full_disk(cluster: Cluster, strike: Strike) -> None:
    """The disk of all is full; a broker that ended over it is started when there is space."""
    ballast = Ballast(cluster.folder)
    until_s = time.monotonic() + strike.hold_s
    try:
        while time.monotonic() < until_s:
            ballast.leave(0)
            await asyncio.sleep(0.1)
    finally:
        ballast.drop()
    for broker in cluster.brokers:
        if not broker.is_alive():
            await asyncio.to_thread(broker.restart)


async def worker_clock_ahead(cluster: Cluster, strike: Strike) -> None:
    """A worker's time of day jumps an hour forth, and back."""
    await _worker_clock(cluster.members[strike.victim], strike, HOUR_S)


async def worker_clock_behind(cluster: Cluster, strike: Strike) -> None:
    """A worker's time of day jumps an hour back, and forth."""
    await _worker_clock(cluster.members[strike.victim], strike, -HOUR_S)


async def _worker_clock(victim: Member, strike: Strike, skew_s: float) -> None:
    victim.set_clock(skew_s)
    try:
        await asyncio.sleep(strike.hold_s)
    finally:
        victim.set_clock(0.0)


async def broker_clock_ahead(cluster: Cluster, strike: Strike) -> None:
    """The broker's time of day jumps an hour forth, and back."""
    await _broker_clock(cluster, strike, HOUR_S)


async def broker_clock_behind(cluster: Cluster, strike: Strike) -> None:
    """The broker's time of day jumps an hour back, and forth."""
    await _broker_clock(cluster, strike, -HOUR_S)


async def _broker_clock(cluster: Cluster, strike: Strike, skew_s: float) -> None:
    assert cluster.broker_shim is not None, "a fault that needs a shim"
    cluster.broker_shim.set_clock(skew_s)
    try:
        await asyncio.sleep(strike.hold_s)
    finally:
        cluster.broker_shim.set_clock(0.0)


async def reshape(cluster: Cluster, strike: Strike) -> None:
    """Shards split, merge and move, one change after the other."""
    chance = random.Random(f"{strike.victim} {strike.hold_s}")
    until_s = time.monotonic() + strike.hold_s
    while time.monotonic() < until_s:
        await _reshape_once(cluster, chance)


async def _reshape_once(cluster: Cluster, chance: random.Random) -> None:
    """Ask for a change that fits the shards as they are; what is refused is left."""
    members = [member for member in cluster.members if member.running]
    member = chance.choice(members)
    listing = await member.ask("RowtideListShards", {"table": TABLE})
    shards = [shard for shard in listing.get("shards", []) if shard["state"] == "open"]
    if not shards:
        await asyncio.sleep(0.2)
        return
    at = chance.randrange(len(shards))
    one, following = shards[at], shards[(at + 1) % len(shards)]
    change = {"table": TABLE, "shard": one["shard"]}
    joined = {"table": TABLE, "shards": [one["shard"], following["shard"]]}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("RowtideSplitShard", {**change, "at": f"{one['begin'] or 'b'}{chance.randrange(9):06}"}),
        ("RowtideMoveShard", {**change, "slot": chance.randrange(listing["slots"])}),
        ("RowtideMergeShards", joined),
    ]
    merges = one["end"] == following["begin"] and one["slot"] == following["slot"]
    await member.ask(*requests[2 if merges and len(shards) > 6 else chance.randrange(2)])
    await asyncio.sleep(0.5)


async def reshape_and_kill(cluster: Cluster, strike: Strike) -> None:
    """Shards split, merge and move while a worker is killed and comes back."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reshape(cluster, strike), name="reshape")
        await asyncio.sleep(strike.hold_s / 3)
        await kill_worker(cluster, replace(strike, hold_s=strike.hold_s / 4))


async def _wire(strike: Strike, victims: Sequence[Member], **wrong: float) -> None:
    await _spoil([victim.proxy for victim in victims], strike.hold_s, wrong)


async def _hops(strike: Strike, victims: Sequence[Member], **wrong: float) -> None:
    await _spoil([victim.hops for victim in victims], strike.hold_s, wrong)


async def _spoil(wires: Sequence[Wired], hold_s: float, wrong: Mapping[str, float]) -> None:
    for one in wires:
        for name, value in wrong.items():
            setattr(one.wire, name, value)
        one.note_change()
    try:
        await asyncio.sleep(hold_s)
    finally:
        for one in wires:
            one.wire.heal()
            one.note_change()


def _from(cluster: Cluster, first: int) -> list[Member]:
    return [*cluster.members[first:], *cluster.members[:first]]


FAULTS: dict[str, Fault] = {
    "kill-worker": Fault(kill_worker, (0.0, 5.0)),
    "pause-worker": Fault(pause_worker, (2.0, 30.0)),
    "rolling-restart": Fault(rolling_restart, (0.0, 1.0), planned=True),
    "join-and-leave": Fault(join_and_leave, (1.0, 4.0), planned=True),
    "restart-broker": Fault(restart_broker, (0.0, 1.0)),
    "broker-away": Fault(restart_broker, (5.0, 60.0)),
    "restart-brokers": Fault(restart_brokers, (0.0, 4.0)),
    "pause-broker": Fault(pause_broker, (1.0, 15.0)),
    "part-from-broker": Fault(part_from_broker, (2.0, 20.0)),
    "part-brokers": Fault(part_brokers, (2.0, 20.0), needs="hosts"),
    "mute-broker": Fault(mute_broker, (2.0, 20.0), needs="hosts"),
    "deafen-broker": Fault(deafen_broker, (2.0, 20.0), needs="hosts"),
    "isolate-worker": Fault(isolate_worker, (2.0, 20.0)),
    "stall-wire": Fault(stall_wire, (2.0, 20.0)),
    "delay-requests": Fault(delay_requests, (4.0, 10.0)),
    "cut-requests": Fault(cut_requests, (4.0, 10.0)),
    "late-produce": Fault(late_produce, (4.0, 10.0)),
    "stall-hops": Fault(stall_hops, (2.0, 20.0)),
    "part-workers": Fault(part_workers, (2.0, 20.0)),
    "delay-hops": Fault(delay_hops, (4.0, 10.0)),
    "cut-hops": Fault(cut_hops, (4.0, 10.0)),
    "reshape": Fault(reshape, (4.0, 12.0), planned=True),
    "reshape-and-kill": Fault(reshape_and_kill, (4.0, 12.0)),
    "slow-disk": Fault(slow_disk, (4.0, 10.0), needs="shim"),
    "full-disk": Fault(full_disk, (3.0, 8.0), needs="disk"),
    "worker-clock-ahead": Fault(worker_clock_ahead, (2.0, 6.0), needs="shim"),
    "worker-clock-behind": Fault(worker_clock_behind, (2.0, 6.0), needs="shim"),
    "broker-clock-ahead": Fault(broker_clock_ahead, (2.0, 6.0), needs="shim"),
    "broker-clock-behind": Fault(broker_clock_behind, (2.0, 6.0), needs="shim"),
}


def draw_schedule(
    fault: str, seed: int, *, strikes: int, workers: int, hold_s_max: float
) -> list[Strike]:
    """Return the schedule of a run; ``mixed`` draws a fault for each strike."""
    chance = random.Random(f"{seed} {fault}")
    schedule = []
    for _ in range(strikes):
        mixed = sorted(name for name, one in FAULTS.items() if not one.needs)
        name = chance.choice(mixed) if fault == "mixed" else fault
        low, high = FAULTS[name].hold_s
        hold_s = round(min(chance.uniform(low, high), hold_s_max), 2)
        gap_s = round(chance.uniform(0.5, 3.0), 2)
        schedule.append(Strike(name, chance.randrange(workers), gap_s, hold_s))
    return schedule
