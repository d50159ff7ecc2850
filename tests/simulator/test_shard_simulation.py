"""One shard, two rivals for it, and every fault there is, in virtual time.

A program is a list of actions. Hypothesis makes some and shrinks those that fail; a seeded driver
makes long ones. Both hold the invariants of the design after every action, and settle at the end:
whatever was acknowledged is there once, what was refused is not, what is unknown is whole or
absent, rows are the fold of the log, and readers see exactly the valid changes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.simulator.simulated_worker import Claim
from tests.simulator.virtual_time import VirtualTimeLoop
from tests.simulator.world import World

Action = tuple[str, tuple[int, ...]]

ACTIONS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "write": (50, [(0, 1), (1, 6), (0, 10**6)]),
    "wait": (30, [(0, 9)]),
    "fault": (8, [(0, 1), (0, 3)]),
    "land_late": (4, []),
    "start": (14, [(0, 1), (0, 15_000)]),
    "kill": (2, [(0, 1), (0, 30)]),
    "stop": (1, [(0, 1)]),
    "pause_leases": (1, [(0, 1)]),
    "skew": (1, [(0, 1), (-100, 100)]),
    "lose_disk": (1, [(0, 1)]),
    "copy_disk": (1, [(0, 1)]),
    "restore_disk": (1, [(0, 1)]),
    "flush_fault": (2, [(0, 1), (0, 1)]),
    "outage": (1, [(1, 20_000)]),
    "compact": (2, [(0, 10)]),
    "flush": (5, [(0, 1)]),
    "expire": (1, [(0, 1)]),
    "options": (3, [(0, 1), (1, 3)]),
}
"""Per action its weight and the bounds of its arguments, inclusive."""

WAITS_MS = (0, 1, 5, 20, 100, 500, 1000, 5000, 12_000, 2)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Failures are what this is about; the log need not repeat them."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def in_virtual_time(program: Coroutine[Any, Any, None]) -> None:
    """Run a program to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(program)


async def perform(world: World, name: str, arguments: Sequence[int]) -> None:
    """Do one action, then check."""
    if name == "wait":
        await asyncio.sleep(WAITS_MS[arguments[0]] / 1000)
    else:
        done = getattr(world, name)(*arguments)
        if inspect.isawaitable(done):
            await done
    world.check()


async def run(actions: Sequence[Action]) -> None:
    """Perform all actions, then settle."""
    async with asyncio.TaskGroup() as tasks:
        world = World(tasks)
        world.start(0)
        await asyncio.sleep(1)
        for name, arguments in actions:
            await perform(world, name, arguments)
        await world.settle()


def one_action() -> st.SearchStrategy[Action]:
    """Return a strategy for one action, the usual ones more often."""
    names = [name for name, (weight, _) in ACTIONS.items() for _ in range(weight)]
    return st.sampled_from(names).flatmap(
        lambda name: st.tuples(
            st.just(name), st.tuples(*(st.integers(*bounds) for bounds in ACTIONS[name][1]))
        )
    )


@settings(max_examples=60)
@given(st.lists(one_action(), max_size=60))
def test_no_program_breaks_an_invariant(actions: list[Action]) -> None:
    note("\n".join(f"{name}{arguments}" for name, arguments in actions))
    in_virtual_time(run(actions))


def random_actions(seed: int, count: int) -> list[Action]:
    chance = random.Random(seed)
    names = chance.choices(list(ACTIONS), [weight for weight, _ in ACTIONS.values()], k=count)
    return [(name, tuple(chance.randint(*bounds) for bounds in ACTIONS[name][1])) for name in names]


KNOWN: dict[str, list[Action]] = {
    "a tombstone is all that compaction left of a delete": [
        ("write", (0, 5, 496803)),
        ("flush", (0,)),
        ("start", (1, 5225)),
        ("wait", (7,)),
        ("write", (1, 2, 222655)),
        ("wait", (8,)),
        ("compact", (10,)),
    ],
    "a no-op that fences is stamped by a clock behind": [
        ("start", (1, 8619)),
        ("skew", (1, 13)),
        ("wait", (7,)),
        ("write", (1, 6, 498757)),
        ("wait", (2,)),
    ],
    "a former owner opens the shard after its successor": [
        ("kill", (0, 9)),
        ("outage", (3880,)),
        ("wait", (5,)),
        ("start", (1, 10304)),
        ("wait", (5,)),
        ("wait", (2,)),
        ("start", (0, 13762)),
        ("pause_leases", (1,)),
        ("wait", (8,)),
        ("write", (1, 5, 782008)),
        ("wait", (5,)),
    ],
    "a client waits while a flush waits for the broker": [
        ("fault", (0, 1)),
        ("write", (0, 6, 2)),
        ("wait", (9,)),
        ("outage", (20_000,)),
        ("wait", (8,)),
        ("wait", (6,)),
    ],
    "a queue is refused that holds options": [
        ("outage", (12_000,)),
        ("write", (0, 1, 1)),
        ("wait", (2,)),
        ("options", (0, 2)),
        ("wait", (2,)),
        ("write", (0, 2, 2)),
        ("wait", (7,)),
        ("wait", (6,)),
        ("write", (0, 3, 3)),
    ],
    "a slot closes while a flush waits for its turn": [
        ("lose_disk", (0,)),
        ("start", (1, 3654)),
        ("start", (0, 13959)),
        ("wait", (1,)),
        ("lose_disk", (0,)),
        ("wait", (7,)),
        ("outage", (5206,)),
        ("flush", (1,)),
        ("wait", (5,)),
        ("wait", (6,)),
        ("flush", (1,)),
        ("flush", (1,)),
        ("start", (0, 490)),
        ("flush", (1,)),
    ],
}
"""Programs that found something once."""


@pytest.mark.parametrize("case", KNOWN)
def test_what_was_found_once_stays_found(case: str) -> None:
    in_virtual_time(run(KNOWN[case]))


@pytest.mark.parametrize("turns", range(8))
def test_a_slot_that_is_cancelled_while_it_fails_ends(turns: int) -> None:
    failed_s: list[float] = []
    in_virtual_time(fail_by_rival(failed_s, None))
    in_virtual_time(fail_by_rival(failed_s, turns))


async def fail_by_rival(failed_s: list[float], turns: int | None) -> None:
    """Let a rival's claim fail a slot; note when, or kill its process just then."""
    async with asyncio.TaskGroup() as tasks:
        world = World(tasks)
        world.start(0)
        await asyncio.sleep(1)
        process = world.processes[0]
        assert process is not None
        assert process.owner is not None
        world.backend.ledger.claims.append(Claim(b"a rival"))
        if turns is None:
            while not process.slot.failed_s:  # noqa: ASYNC110 - it is the slot's own list.
                await asyncio.sleep(0.001)
            failed_s += process.slot.failed_s
        else:
            await asyncio.sleep(failed_s[0] - asyncio.get_running_loop().time())
            for _ in range(turns):
                await asyncio.sleep(0)
        await world.kill(0, 0)


@pytest.mark.parametrize("seed", range(35))
def test_no_random_program_breaks_an_invariant(seed: int) -> None:
    in_virtual_time(run(random_actions(seed, 300)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_no_long_random_program_breaks_an_invariant(seed: int) -> None:
    in_virtual_time(run(random_actions(seed, 1000)))
