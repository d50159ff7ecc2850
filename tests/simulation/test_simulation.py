"""Runs that nobody wrote: each seed is a cluster, its weather, and what its clients ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.program import simulate

ROOT = Path(__file__).parents[2]
SEEDS = 200
FIRST = int(os.environ.get("ROWTIDE_SEED", "1"))


def test_one_seed_is_one_run() -> None:
    for seed in range(5):
        assert simulate(seed).hash == simulate(seed).hash
    assert simulate(1).hash != simulate(2).hash


def test_no_seed_breaks_an_invariant() -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--jobs", "2"]
    command += ["--seeds", str(SEEDS), "--from", str(FIRST)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS} runs" in done.stdout
