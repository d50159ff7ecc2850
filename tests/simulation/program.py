"""One integer makes a run: how many workers and slots, the weather, the clocks, what happens."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rowtide.core.values.errors import first_failure
from tests.simulation.network import Weather
from tests.simulation.trace import Trace
from tests.simulation.virtual_time import VirtualTimeLoop
from tests.simulation.world import WHERE_DEPOSED, World

__all__ = ["Action", "Found", "Run", "in_world", "perform", "simulate"]

Action = tuple[str, tuple[int, ...]]

ACTIONS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "write": (50, [(0, 2), (1, 6)]),
    "read": (12, [(0, 2)]),
    "fault": (8, [(0, 2), (0, 4)]),
    "start": (10, [(0, 2)]),
    "kill": (2, [(0, 2), (0, 1000)]),
    "stop": (1, [(0, 2)]),
    "pause": (3, [(0, 2), (1, 6000)]),
    "ambush": (4, [(0, 2), (0, 4), (0, 6000)]),
    "ambush_to_death": (2, [(0, 2), (0, 4)]),
    "crash_recovering": (1, [(0, 2), (0, 1500)]),
    "cut": (2, [(0, 2), (1, 8000)]),
    "shuffle": (3, []),
    "skew": (2, [(0, 2), (-3600, 3600)]),
    "lose_disk": (1, [(0, 2)]),
    "copy_disk": (1, [(0, 2)]),
    "restore_disk": (1, [(0, 2)]),
    "flush_fault": (4, [(0, 2), (0, 4)]),
    "outage": (1, [(1, 13_000)]),
    "compact": (2, [(0, 10)]),
    "flush": (8, [(0, 2)]),
    "trim": (4, [(0, 2)]),
    "split": (3, [(0, 1), (0, 5)]),
    "merge": (2, [(0, 1), (0, 5)]),
    "move": (2, [(0, 1), (0, 5), (0, 2)]),
    "options": (3, [(0, 2), (1, 3)]),
}
"""Per action its weight and the bounds of its arguments, inclusive."""

SOURCE_ACTIONS: tuple[Action, ...] = (
    *(("source", (which, count)) for which in (0, 1) for count in (1, 3, 8)),
    ("source_restart", (0,)),
    ("source_restart", (1,)),
)
"""What sources do, in runs of even seeds, beside the actions: those stay a seed's own."""

SOURCES_OFTEN = 0.4

COPIES_FROM = 2_000_000
"""In runs of seeds from here on workers keep copies of each other's slots."""

COPIES_OFTEN = 0.04
"""Interval of new divisions of the slots."""

DEPOSED_FROM = 4_000_000
"""In runs of seeds from here on workers go on asking leaders that were deposed."""

DEPOSED_OFTEN = 0.12
"""How often one begins to."""

IGNORANT_FROM = 5_000_000
"""From this seed on reads of logs sometimes return nothing, although there are entries: a
new leader returns all that it has only once it knows the high watermark.
"""
IGNORANT = (0.01, 0.1, 0.3)
"""Part of the reads."""

LATE_READS_FROM = 3_000_000
"""In runs of seeds from here on answers to reads of logs and changelogs come late now and then."""
LATE_READS = (0.01, 0.03, 0.1)
"""Part of the answers."""

SHORT_READS_FROM = 1_000_000
"""From this seed on reads return a log in pieces, so a fault may meet a recovery half way. Below
this number a read returns the whole log, so that old seeds still repeat the same run."""
SHORT_READS = (1, 1, 300, 1000, 4000)
"""Bytes; one reads entry by entry."""

EDGE_FROM = 6_000_000
"""In runs of seeds from here on clients ask at workers' edges, too."""
EDGE_ACTIONS: tuple[Action, ...] = (
    ("transaction", ()),
    ("transaction", ()),
    ("scan", ()),
    ("scan", ()),
    ("request", (1,)),
    ("request", (1,)),
    ("request", (2,)),
    ("request", (4,)),
)
EDGE_OFTEN = 0.5

RECLAIM_FROM = 7_000_000
"""From this seed on invisible versions are reclaimed."""
RECLAIM_OFTEN = 0.15

FOLLOWED_FROM = 8_000_000
"""In runs of seeds from here on the tables have global indexes, one more comes and goes."""
INDEX_ACTIONS: tuple[Action, ...] = ("create_index", ()), ("create_index", ()), ("drop_index", ())
INDEX_OFTEN = 0.06

EXPIRING_FROM = 9_000_000
"""In runs of seeds from here on versions expire, and rows with them; there are no global indexes:
tables with one keep all versions."""
EXPIRING_OFTEN = 0.15
LIVES_S = (0, 1, 5, 30, 3600)

LOCAL_FROM = 10_000_000
"""In runs of seeds from here on a local index comes and goes, and disks fail now and then; there
are global indexes, and nothing expires."""
LOCAL_ACTIONS: tuple[Action, ...] = ("create_local", ()), ("create_local", ()), ("drop_local", ())
LOCAL_OFTEN = 0.08
DISKS_OFTEN = 0.04
DISKS_FAIL_MS = (1, 30, 1000, 12_000)

ALONE_FROM = 11_000_000
"""In runs of seeds from here on there is one worker with a local log, and no broker. Its log's
disk fails as its row stores' do. What concerns brokers and other workers is left out."""
OF_OTHERS = frozenset({"cut", "outage", "shuffle", "compact"})

WAITS_S = (0.0, 0.0, 0.001, 0.005, 0.02, 0.1, 0.3, 1.0, 2.0)
STEPS = 120


@dataclass(slots=True)
class Run:
    """What a run was: a hash of all that happened, how often what happened, the last steps.

    ``failure`` says what went wrong, or is empty.
    """

    seed: int
    hash: str
    counts: Counter[str]
    lines: list[str]
    failure: str = ""


class Found(AssertionError):
    """A run that broke an invariant."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.failure)
        self.run = run


def simulate(seed: int, steps: int = STEPS) -> Run:
    """Run a seed. Raises ``Found``."""
    worlds: list[World] = []
    failure: BaseException | None = None
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(_run(seed, steps, worlds))
    except BaseExceptionGroup as failures:
        failure = first_failure(failures)
    finally:
        logging.disable(logging.NOTSET)
    trace = worlds[0].trace
    run = Run(seed, trace.hexdigest(), trace.counts, list(trace.lines))
    if failure is not None:
        run.failure = f"seed {seed}: {type(failure).__name__}: {failure}"
        raise Found(run) from failure
    return run


async def _run(seed: int, steps: int, worlds: list[World]) -> None:
    chance = random.Random(seed)
    workers, slots = chance.choice(((2, 1), (2, 2), (3, 2), (3, 3)))
    alone = seed >= ALONE_FROM
    workers = 1 if alone else workers
    sourced = random.Random(f"sources {seed}") if seed % 2 == 0 else None
    copied = random.Random(f"copies {seed}") if COPIES_FROM <= seed < ALONE_FROM else None
    deposed = random.Random(f"deposed {seed}") if DEPOSED_FROM <= seed < ALONE_FROM else None
    at_edge = random.Random(f"edge {seed}") if seed >= EDGE_FROM else None
    reclaimed = random.Random(f"reclaim {seed}") if seed >= RECLAIM_FROM else None
    followed = FOLLOWED_FROM <= seed < EXPIRING_FROM or seed >= LOCAL_FROM
    local = random.Random(f"local {seed}") if seed >= LOCAL_FROM else None
    indexed = random.Random(f"index {seed}") if followed else None
    expiring = random.Random(f"expiring {seed}") if EXPIRING_FROM <= seed < LOCAL_FROM else None
    async with world_of(seed, workers=workers, slots=slots, local_log=alone) as world:
        worlds.append(world)
        world.followed = indexed is not None
        world.local = local is not None
        world.shared.copies = copied is not None
        await world.begin()
        world.shared.hop.cuts = at_edge
        if seed >= SHORT_READS_FROM:
            pieces = random.Random(f"reads {seed}")
            world.network.read_bytes_max = pieces.choice(SHORT_READS)
        if seed >= LATE_READS_FROM:
            world.network.lateness = late = random.Random(f"late {seed}")
            world.network.late_often = late.choice(LATE_READS)
        if seed >= IGNORANT_FROM:
            world.network.ignorance = ignorance = random.Random(f"ignorant {seed}")
            world.network.ignorant_often = ignorance.choice(IGNORANT)
        world.network.weather = _weather(chance)
        for machine in world.machines:
            machine.wheel.rate = chance.uniform(0.98, 1.02)
        for _ in range(steps):
            action = _action(chance)
            if not (alone and action[0] in OF_OTHERS):
                await perform(world, action)
            if sourced is not None and sourced.random() < SOURCES_OFTEN:
                await perform(world, sourced.choice(SOURCE_ACTIONS))
            if copied is not None and copied.random() < COPIES_OFTEN:
                await perform(world, ("stand_by", (copied.randrange(workers), copied.randrange(8))))
            if deposed is not None and deposed.random() < DEPOSED_OFTEN:
                await perform(world, _deposing(deposed, workers))
            if at_edge is not None and at_edge.random() < EDGE_OFTEN:
                await perform(world, at_edge.choice(EDGE_ACTIONS))
            if reclaimed is not None and reclaimed.random() < RECLAIM_OFTEN:
                of = reclaimed.randrange(workers), reclaimed.randint(1, 3)
                await perform(world, ("reclaim", of))
            if indexed is not None and indexed.random() < INDEX_OFTEN:
                await perform(world, indexed.choice(INDEX_ACTIONS))
            if expiring is not None and expiring.random() < EXPIRING_OFTEN:
                lasting = expiring.randrange(workers), expiring.choice(LIVES_S)
                await perform(world, ("expire", lasting))
            if local is not None and local.random() < LOCAL_OFTEN:
                await perform(world, local.choice(LOCAL_ACTIONS))
            if local is not None and local.random() < DISKS_OFTEN:
                await perform(world, _failing(local, workers))
            await asyncio.sleep(chance.choice(WAITS_S))
            world.check()
        await world.settle()


@asynccontextmanager
async def world_of(
    seed: int, *, workers: int, slots: int, local_log: bool = False
) -> AsyncIterator[World]:
    """Hold a world whose processes all end in the end."""
    try:
        async with asyncio.TaskGroup() as tasks:
            world = World(tasks, seed, workers=workers, slots=slots, local_log=local_log)
            try:
                yield world
            finally:
                world.end()
            raise _Over
    except* _Over:
        pass


def in_world(
    program: Callable[[World], Awaitable[None]],
    *,
    seed: int = 0,
    workers: int = 2,
    slots: int = 1,
    local_log: bool = False,
) -> Trace:
    """Run a program in a world of its own, in fair weather; raises what the program raises."""
    worlds: list[World] = []

    async def whole() -> None:
        async with world_of(seed, workers=workers, slots=slots, local_log=local_log) as world:
            worlds.append(world)
            await program(world)

    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(whole())
    except BaseExceptionGroup as failures:
        raise first_failure(failures) from failures
    finally:
        logging.disable(logging.NOTSET)
    return worlds[0].trace


class _Over(Exception):
    """Ends a run's tasks."""


def _weather(chance: random.Random) -> Weather:
    """Return fair weather in every third run."""
    if chance.random() < 0.33:
        return Weather()
    return Weather(
        latency_s=chance.choice((0.002, 0.01, 0.05)),
        faults=chance.choice((0.0, 0.02, 0.1)),
        lost=chance.choice((0.0, 0.02, 0.1)),
        slow=chance.choice((0.0, 0.01, 0.05)),
    )


def _action(chance: random.Random) -> Action:
    [name] = chance.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()])
    return name, tuple(chance.randint(*bounds) for bounds in ACTIONS[name][1])


def _deposing(chance: random.Random, workers: int) -> Action:
    of, ms = chance.randrange(len(WHERE_DEPOSED)), chance.choice((200, 2000, 8000))
    return "depose", (chance.randrange(workers), of, chance.randrange(5), chance.randint(1, ms))


def _failing(local: random.Random, workers: int) -> Action:
    of, ms = (local.randrange(workers), local.randrange(3)), local.choice(DISKS_FAIL_MS)
    which = local.choice(("fail_writes", "fail_reads", "damage"))
    return which, of if which == "damage" else (*of, local.randint(1, ms))


async def perform(world: World, action: Action) -> None:
    """Do one action. Workers are numbered round: a run may have fewer."""
    name, arguments = action
    if arguments and name in ACTIONS and ACTIONS[name][1][0] == (0, 2):
        arguments = (arguments[0] % len(world.machines), *arguments[1:])
    world.trace.add("do", f"{name}{arguments}")
    done = getattr(world, name)(*arguments)
    if inspect.isawaitable(done):
        await done
