"""Under any faults, readers get every change of a key, in order.

``ROWTIDE_READER_SEEDS`` is the number of seeds, ``ROWTIDE_SEED`` the first. Each seed is one exact
run. ``make test`` runs a third of the seeds.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.changes.virtual_readers import World
from tests.simulation.virtual_time import in_virtual_time

SEEDS = int(os.environ.get("ROWTIDE_READER_SEEDS", "300"))
FIRST = int(os.environ.get("ROWTIDE_SEED", "1"))
AT_ONCE = 50
QUICK = 100
"""Seeds that ``make test`` runs, of readers that leave half as many."""
ACTIONS = 60

FOUND = {
    399: "a shard was lost before its task began: this reader never let go of it again",
    1901: "a page came as the lease ended, a renewal saved the lease, and the page was passed over",
}


def run(seed: int, *, leaves_inside: bool = False) -> None:
    seeds = 3 if leaves_inside else 1  # With three, a third runs with leaves.
    try:
        in_virtual_time(World(seed, leaves_inside=leaves_inside).run(ACTIONS))
    except Exception as error:
        again = f"ROWTIDE_SEED={seed} ROWTIDE_READER_SEEDS={seeds}"
        raise AssertionError(f"{again}: {error}") from error


def blocks(seeds: int, quick: int) -> list[Any]:
    """Return the first seed of each block."""
    return [
        pytest.param(FIRST + at, marks=() if at < quick else pytest.mark.slow)
        for at in range(0, seeds, AT_ONCE)
    ]


@pytest.mark.parametrize("first", blocks(SEEDS, QUICK))
def test_no_seed_loses_a_change_or_tells_it_out_of_order(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FIRST + SEEDS)):
        run(seed)


@pytest.mark.parametrize("first", blocks(SEEDS // 3, QUICK // 2))
def test_readers_that_leave_inside_a_batch_lose_nothing(first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, FIRST + SEEDS // 3)):
        run(seed, leaves_inside=True)


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_a_fault_that_was_found_stays_fixed(seed: int) -> None:
    run(seed)
