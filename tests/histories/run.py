"""Many runs: ``python -m tests.histories.run --runs 10 --seed 100 --fault kill-worker``.

Each run has a seed of its own, from ``--seed`` on; its report is a line of JSON, appended to
``--json``. A run is repeated by its seed and its fault. Exit code 1 where an anomaly was found.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import uvloop

from rowtide.deploy.kafka.config import default_cache_dir
from tests.histories.campaign import Plan, Report, run
from tests.histories.faults import FAULTS, draw_schedule
from tests.histories.operation import to_json
from tests.system.small_disk import small_disk
from tests.system.three_brokers import NODES

WORKERS = 3
DISK = 600 << 20
"""Bytes of the disk that fills up: Kafka alone allocates 50 MB at its start."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the runs and return the exit code."""
    wanted = parse_arguments(arguments)
    faults = _possible(wanted.brokers) if wanted.fault == "all" else [wanted.fault]
    anomalies = 0
    for number in range(wanted.runs):
        report = one_run(faults[number % len(faults)], wanted.seed + number, wanted)
        anomalies += len(report.anomalies)
        with wanted.json.open("a", encoding="utf-8") as file:
            file.write(report.line() + "\n")
        print(shown(report), flush=True)  # noqa: T201  # What the command is for.
    return 1 if anomalies else 0


def _possible(brokers: int) -> list[str]:
    """Return the faults that so many brokers can be struck with."""
    needs = ("", "shim", "disk") if brokers == 1 else ("", "hosts")
    return [name for name, fault in FAULTS.items() if fault.needs in needs]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fault", choices=[*FAULTS, "mixed", "all"], default="all")
    parser.add_argument("--brokers", type=int, choices=[1, NODES], default=1)
    parser.add_argument("--standbys", type=int, default=0)
    parser.add_argument("--makers", action="store_true", help="of tables and instances, too")
    parser.add_argument("--strikes", type=int, default=3)
    parser.add_argument("--hold-s-max", type=float, default=60.0)
    parser.add_argument("--lease-s", type=float, default=1.5)
    parser.add_argument("--flush-s", type=float, default=2.0)
    parser.add_argument("--json", type=Path, default=Path("histories.jsonl"))
    return parser.parse_args(arguments)


def one_run(fault: str, seed: int, wanted: argparse.Namespace) -> Report:
    """Make one run in a folder of its own."""
    schedule = draw_schedule(
        fault, seed, strikes=wanted.strikes, workers=WORKERS, hold_s_max=wanted.hold_s_max
    )
    options = ("--lease-s", str(wanted.lease_s), "--flush-s", str(wanted.flush_s))
    plan = Plan(
        fault, seed, schedule, WORKERS, options, wanted.brokers, wanted.standbys, wanted.makers
    )
    folder = Path(tempfile.mkdtemp(prefix="rowtide-histories-"))
    keep = True
    try:
        report = play(plan, folder)
        keep = bool(report.anomalies)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    return report


def play(plan: Plan, folder: Path) -> Report:
    """Make a run with what its faults need. Raises ``NoDisk``, ``NoHosts``."""
    cache_dir = default_cache_dir(os.environ, sys.platform)
    with ExitStack() as closing:
        place = folder / "run"
        if any(FAULTS[strike.fault].needs == "disk" for strike in plan.schedule):
            closing.enter_context(small_disk(place, DISK))
            plan = replace(plan, options=[*plan.options, "--free-bytes-min", "0"])
        else:
            place.mkdir()
        runner = closing.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        report, evidence = runner.run(run(plan, place, cache_dir))
    if report.anomalies:
        file = folder / "history.json"
        file.write_text(json.dumps([to_json(one) for one in evidence.history]))
        report.anomalies.append(f"the history is in {file}")
    return report


def shown(report: Report) -> str:
    """Return what a reader wants to see of a run."""
    pauses = [pause or 0.0 for strike in report.strikes for pause in strike["writes"].values()]
    rate = report.operations / max(report.loaded_s, 1)
    return (
        f"{report.fault} seed {report.seed}: {report.operations} operations ({rate:.0f}/s), "
        f"{report.outcomes}, {report.bounded} might be stale, {report.behind} were, "
        f"copies answered {report.copied}, "
        f"{report.named} on names, {report.records} records, "
        f"CPU {report.cpu_s} of {report.loaded_s} s, "
        f"longest pause {max(pauses, default=0):.2f} s, "
        f"{report.undecided} undecided at first, judged in {report.judged_s} s, "
        f"{len(report.anomalies)} anomalies {report.anomalies[:5]}"
    )


if __name__ == "__main__":
    sys.exit(main())
