"""Random runs: each seed is a cluster, its weather, and its clients' requests."""

from __future__ import annotations

import os
import subprocess
import sys
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
SEEDS = 6
"""Seeds of each kind in every run of the tests."""
LATER_SEEDS, LATER_BLOCKS = 10, 3
"""Seeds of a block, and blocks of each kind, that only ``make test-all`` runs as well."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_breaks_an_invariant(kind: int) -> None:
    """Run each seed in two processes whose strings have other hashes. The same must happen."""
    once, again = (run_seeds(SEEDS, FIRST + kind, hash_seed=text) for text in ("1", "random"))
    assert once.startswith("all that happened")
    assert once == again


@pytest.mark.slow
@pytest.mark.parametrize("block", range(LATER_BLOCKS))
@pytest.mark.parametrize("kind", KINDS)
def test_no_later_seed_breaks_an_invariant(kind: int, block: int) -> None:
    first = FIRST + kind + SEEDS + LATER_SEEDS * block
    assert run_seeds(LATER_SEEDS, first, hash_seed="random")


def run_seeds(seeds: int, first: int, *, hash_seed: str) -> str:
    """Run seeds in a process of its own. Return the line with the hash of all that happened."""
    command = [sys.executable, "-m", "tests.simulation.run"]
    command += ["--seeds", str(seeds), "--from", str(first)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    happened, count = done.stdout.splitlines()[-2:]
    assert count.startswith(f"{seeds} runs"), done.stdout
    return happened
