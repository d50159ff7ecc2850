"""Measures the parts of ``make test``, and names a part that grew against a recorded baseline.

The Makefile runs each part through ``run`` and prints the table with ``report``. A slow machine, or
a slow hour of it, is not taken for a slow part: a fixed loop is timed before each part, and the
part's seconds are scaled by it. ``record`` makes the last run the new baseline. Nothing here fails
a run: a part that grew is a printed line.

A part that runs ``--beside`` others has a low priority: it takes what time they leave. How long it
takes says nothing then, so its CPU time is compared.

    python -m tests.support.parts begin
    python -m tests.support.parts run NAME [--beside] [--in FOLDER] -- COMMAND ...
    python -m tests.support.parts report
    python -m tests.support.parts record
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Baseline", "Part", "growth", "loop_s", "main", "table"]

ROOT = Path(__file__).resolve().parents[2]
LAST = ROOT / "build/parts.jsonl"
BASELINE = Path(__file__).with_name("parts.json")
GROWTH_MAX = 1.2
"""A part that took more than this times its baseline is named."""
LOOP_STEPS = 400_000
LOOP_TIMES = 9
BESIDE_NICE = 10
"""Priority of a part beside others: each busy neighbour takes nine times as much time. With a lower
one a test would need minutes for a second of CPU."""


@dataclass(frozen=True, slots=True)
class Part:
    """``cpu_s`` is the time of all processes that ended within the part. ``loop_s`` is how long the
    fixed loop took just before. ``began_s`` is seconds since 1970."""

    name: str
    wall_s: float
    cpu_s: float
    loop_s: float
    beside: bool = False
    began_s: float = 0.0

    def find_compared_s(self, *, beside: bool) -> float:
        """Return the time by which parts are compared that ran beside others, or did not."""
        return self.cpu_s if beside else self.wall_s


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the parts took, on which machine."""

    machine: str
    processors: int
    parts: tuple[Part, ...]

    def of(self, name: str) -> Part | None:
        """Return the part of that name."""
        return next((part for part in self.parts if part.name == name), None)


def loop_s(clock: Callable[[], float] = time.perf_counter) -> float:
    """Return how many seconds a fixed loop in pure Python takes now: the median of several."""
    return statistics.median(_one_loop_s(clock) for _ in range(LOOP_TIMES))


def _one_loop_s(clock: Callable[[], float]) -> float:
    began = clock()
    total = 0
    for number in range(LOOP_STEPS):
        total = (total * 31 + number) & 0xFFFFFFFF
    return clock() - began


def growth(part: Part, before: Part) -> float:
    """Return how many times longer a part took than before, on a machine of the same speed."""
    speed = part.loop_s / before.loop_s
    then_s = before.find_compared_s(beside=part.beside)
    return part.find_compared_s(beside=part.beside) / (then_s * speed)


def table(parts: Sequence[Part], baseline: Baseline | None, processors: int) -> list[str]:
    """Return the lines that tell what each part took, and which parts grew."""
    compared = baseline if baseline is not None and baseline.processors == processors else None
    lines = [f"{'part':34} {'wall':>8} {'CPU':>8} {'baseline':>9} {'change':>7}"]
    grew: list[str] = []
    for part in parts:
        before = compared.of(part.name) if compared is not None else None
        lines.append(_line(part, before))
        if before is not None and growth(part, before) > GROWTH_MAX:
            grew.append(
                f"GREW: {part.name}: {growth(part, before):.2f} times its baseline "
                f"at the same machine speed"
            )
    total = Part("all", _measure_elapsed_s(parts), sum(p.cpu_s for p in parts), 1.0)
    return [*lines, _line(total, None), *grew, *_list_uncompared(baseline, processors)]


def _measure_elapsed_s(parts: Sequence[Part]) -> float:
    """Return how long all parts took together: some run at the same time."""
    if not parts:
        return 0.0
    return max(p.began_s + p.wall_s for p in parts) - min(p.began_s for p in parts)


def _line(part: Part, before: Part | None) -> str:
    line = f"{part.name:34} {part.wall_s:6.0f} s {part.cpu_s:6.0f} s"
    if before is None:
        return line
    then_s = before.find_compared_s(beside=part.beside)
    return f"{line} {then_s:7.0f} s {growth(part, before) - 1:+7.0%}"


def _list_uncompared(baseline: Baseline | None, processors: int) -> list[str]:
    if baseline is None:
        return ["Not compared: no baseline is recorded."]
    if baseline.processors != processors:
        return [f"Not compared: {processors} processors; the baseline has {baseline.processors}."]
    return []


def run(name: str, command: Sequence[str], folder: str | None, *, beside: bool) -> int:
    """Run a part, note what it took, and return its exit code."""
    # Beside others the loop waits for its turn, which is no slowness of the machine.
    loop = loop_s(time.thread_time if beside else time.perf_counter)
    lower = _lower_priority if beside else None
    began_s, began, before = time.time(), time.monotonic(), _cpu_s()
    code = subprocess.run(command, cwd=folder, check=False, preexec_fn=lower).returncode
    part = Part(name, time.monotonic() - began, _cpu_s() - before, loop, beside, began_s)
    LAST.parent.mkdir(exist_ok=True)
    with LAST.open("a", encoding="utf-8") as noted:
        noted.write(json.dumps(asdict(part)) + "\n")
    return code


def _lower_priority() -> None:
    os.nice(BESIDE_NICE)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def last_parts() -> tuple[Part, ...]:
    """Return the parts of the last run; one that ran twice counts with its last time."""
    if not LAST.exists():
        return ()
    parts = [Part(**json.loads(line)) for line in LAST.read_text(encoding="utf-8").splitlines()]
    return tuple({part.name: part for part in parts}.values())


def read_baseline() -> Baseline | None:
    """Return the baseline, or None where none is recorded."""
    if not BASELINE.exists():
        return None
    kept = json.loads(BASELINE.read_text(encoding="utf-8"))
    parts = tuple(Part(name, **part) for name, part in kept["parts"].items())
    return Baseline(kept["machine"], kept["processors"], parts)


def record(machine: str) -> None:
    """Make the last run the baseline."""
    parts = {
        part.name: {
            "wall_s": round(part.wall_s, 3),
            "cpu_s": round(part.cpu_s, 3),
            "loop_s": round(part.loop_s, 4),
        }
        for part in last_parts()
    }
    kept = {"machine": machine, "processors": os.cpu_count(), "parts": parts}
    BASELINE.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Do what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="parts")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("begin", help="forget the last run")
    one = commands.add_parser("run", help="run a part")
    one.add_argument("name")
    one.add_argument("--in", dest="folder")
    one.add_argument("--beside", action="store_true", help="at a low priority, beside other parts")
    one.add_argument("words", nargs="+", metavar="COMMAND")
    commands.add_parser("report", help="print what each part took")
    kept = commands.add_parser("record", help="make the last run the baseline")
    kept.add_argument("machine", help="which machine it was, in a few words")
    asked = parser.parse_args(arguments)
    if asked.command == "run":
        return run(asked.name, asked.words, asked.folder, beside=asked.beside)
    if asked.command == "begin":
        LAST.unlink(missing_ok=True)
    elif asked.command == "record":
        record(asked.machine)
    else:
        print("\n".join(table(last_parts(), read_baseline(), os.cpu_count() or 1)))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
