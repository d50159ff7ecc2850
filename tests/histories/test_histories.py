"""Eight clients, three worker processes and a real broker under faults: every answer is explained.

Short runs with two faults each, and a slow one whose worker is paused for half a minute;
``python -m tests.histories.run`` makes long ones, with every fault. The seed is printed;
ROWTIDE_SEED repeats a run's operations and strikes. Then half of the known anomalies is planted in
copies of the history. The judge must find each.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop

from tests.histories.campaign import Plan, Report, run
from tests.histories.faults import Strike, draw_schedule
from tests.histories.judgement import Evidence, judge
from tests.histories.planted import PLANTED, plant_fault

pytestmark = [pytest.mark.kafka, pytest.mark.system]

WORKERS = 3
HOLD_S_MAX = 4.0
PAUSE_S = 30.0
OPTIONS = ("--lease-s", "1.5", "--flush-s", "1")

COPIED = "a worker without a broker, a broker killed"
"""In this run each slot has a warm copy, which answers reads that may be stale."""

KILLED = "a worker killed, its wire cut"
"""Kills under load are in many tests of ``make test``, so this run is left to ``make test-all``."""

RUNS = {
    KILLED: ["kill-worker", "cut-requests"],
    "a worker paused, produce requests late": ["pause-worker", "late-produce"],
    COPIED: ["isolate-worker", "restart-broker"],
}


def schedule(faults: Sequence[str], seed: int) -> list[Strike]:
    return [
        strike
        for fault in faults
        for strike in draw_schedule(fault, seed, strikes=1, workers=WORKERS, hold_s_max=HOLD_S_MAX)
    ]


def play_cleanly(plan: Plan, tmp_path: Path, cache_dir: Path) -> tuple[Report, Evidence]:
    """Make a run that shows anything, and in which nothing was wrong."""
    folder = tmp_path / "run"
    folder.mkdir()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        report, evidence = runner.run(run(plan, folder, cache_dir))
    print(report.line())  # noqa: T201  # Shown with -s, and when the test fails.
    assert report.anomalies == []
    assert report.outcomes["ok"] > 1000, "a run that shows anything"
    return report, evidence


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == KILLED else ()) for name in RUNS]
)
def test_every_answer_can_be_explained(
    name: str, seed: int, tmp_path: Path, cache_dir: Path
) -> None:
    standbys = int(name == COPIED)
    plan = Plan(name, seed, schedule(RUNS[name], seed), WORKERS, OPTIONS, standbys=standbys)
    report, evidence = play_cleanly(plan, tmp_path, cache_dir)
    assert bool(report.copied) is (name == COPIED), "copies answer where there are some"
    chance = random.Random(seed)
    for fault in list(PLANTED)[standbys::2]:
        found_as = PLANTED[fault].found_as
        anomalies = judge(plant_fault(fault, evidence, chance)).anomalies
        assert found_as in {found.partition(":")[0] for found in anomalies}, fault


@pytest.mark.slow
def test_an_owner_that_stood_still_for_30_s_tells_nothing_old(
    seed: int, tmp_path: Path, cache_dir: Path
) -> None:
    chance = random.Random(seed)
    strike = Strike("pause-worker", chance.randrange(WORKERS), gap_s=1.0, hold_s=PAUSE_S)
    report, _ = play_cleanly(Plan("paused", seed, [strike], WORKERS, OPTIONS), tmp_path, cache_dir)
    [struck] = report.strikes
    assert struck["seconds"] >= PAUSE_S
    assert struck["hit"], "it served shards when it was stopped"
    # Writes went on at its successors: what it goes on with is of before.
    assert all(pause is not None and pause < PAUSE_S for pause in struck["writes"].values())
