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
SEEDS = 12
"""Seeds of each kind in every run of the tests, and in each of the blocks that follow them."""
LATER_BLOCKS = 2
"""Blocks of each kind that only ``make test-all`` runs as well."""
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
    for seed in range(5):
        assert simulate(seed).hash == simulate(seed).hash
    assert simulate(1).hash != simulate(2).hash


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_is_one_run_in_every_process(kind: int) -> None:
    digests = [
        ran(6, jobs=1, hash_seed=hash_seed, first=1 + kind).splitlines()[-2]
        for hash_seed in ("1", "2")
    ]
    assert digests[0].startswith("all that happened")
    assert digests[0] == digests[1]


def blocks() -> list[object]:
    """Return the first seed of each block."""
    later = [
        pytest.param(FIRST + kind + SEEDS * block, marks=pytest.mark.slow)
        for kind in KINDS
        for block in range(1, LATER_BLOCKS + 1)
    ]
    return [*(FIRST + kind for kind in KINDS), *later]


@pytest.mark.parametrize("first", blocks())
def test_no_seed_breaks_an_invariant(first: int) -> None:
    assert f"{SEEDS} runs" in ran(SEEDS, jobs=2, hash_seed="random", first=first)


def ran(seeds: int, *, jobs: int, hash_seed: str, first: int = FIRST) -> str:
    """Run seeds in processes of their own, whose strings' hashes differ; return what they print."""
    command = [sys.executable, "-m", "tests.simulation.run", "--jobs", str(jobs)]
    command += ["--seeds", str(seeds), "--from", str(first)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
