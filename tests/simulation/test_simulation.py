"""Random runs: each seed is a cluster, its weather, and its clients' requests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.program import (
    ALONE_FROM,
    COPIES_FROM,
    DEPOSED_FROM,
    EDGE_FROM,
    EXPIRING_FROM,
    FOLLOWED_FROM,
    IGNORANT_FROM,
    LATE_READS_FROM,
    LOCAL_FROM,
    RECLAIM_FROM,
    SHORT_READS_FROM,
    simulate,
)

ROOT = Path(__file__).parents[2]
SEEDS = 1
"""Seeds of each kind in every run of the tests; ``make test-all`` compares six times as many."""
COMPARED = 6 * SEEDS
LATER_SEEDS, LATER_BLOCKS = 10, 3
"""Seeds of a block, and blocks of each kind, that only ``make test-all`` runs as well."""
KINDS_AT_ONCE = 6
"""Kinds of one test: to start a process takes as long as a seed."""
KINDS = (
    0,
    SHORT_READS_FROM,
    COPIES_FROM,
    LATE_READS_FROM,
    DEPOSED_FROM,
    IGNORANT_FROM,
    EDGE_FROM,
    RECLAIM_FROM,
    FOLLOWED_FROM,
    EXPIRING_FROM,
    LOCAL_FROM,
    ALONE_FROM,
)
FIRST = int(os.environ.get("ROWTIDE_SEED", "1"))


def test_one_seed_is_one_run() -> None:
    first, second = (simulate(seed).hash for seed in (1, 2))
    assert [simulate(seed).hash for seed in (1, 2)] == [first, second]
    assert first != second


@pytest.mark.parametrize(
    ("seeds_before", "seeds"),
    [(0, SEEDS), pytest.param(SEEDS, COMPARED - SEEDS, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    "kinds",
    [KINDS[at : at + KINDS_AT_ONCE] for at in range(0, len(KINDS), KINDS_AT_ONCE)],
    ids=lambda kinds: "-".join(map(str, kinds)),
)
def test_no_seed_breaks_an_invariant(kinds: Sequence[int], seeds_before: int, seeds: int) -> None:
    """Run each seed in two processes whose strings have other hashes. The same must happen."""
    firsts = [FIRST + kind + seeds_before for kind in kinds]
    once, again = (run_seeds(seeds, firsts, hash_seed=text) for text in ("1", "random"))
    assert len(once) == len(kinds)
    assert once == again


@pytest.mark.slow
@pytest.mark.parametrize("block", range(LATER_BLOCKS))
@pytest.mark.parametrize("kind", KINDS)
def test_no_later_seed_breaks_an_invariant(kind: int, block: int) -> None:
    first = FIRST + kind + COMPARED + LATER_SEEDS * block
    assert run_seeds(LATER_SEEDS, [first], hash_seed="random")


def run_seeds(seeds: int, firsts: Sequence[int], *, hash_seed: str) -> list[str]:
    """Run seeds in a process of its own. Return a line for each series, with the hash of all that
    happened."""
    command = [sys.executable, "-m", "tests.simulation.run", "--seeds", str(seeds)]
    command += [word for first in firsts for word in ("--from", str(first))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.startswith(f"{seeds} runs") for line in lines[2::3]] == [True] * len(firsts), lines
    return [line for line in lines if line.startswith("all that happened")]
