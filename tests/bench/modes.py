"""Kafka, local logs and PostgreSQL side by side: ``python -m tests.bench.modes``.

It needs ``go``. A table of what a user of each mode notices: how long a start takes, what an idle
server costs, and what one put takes with the official Go SDK, also beside 20 processes that never
wait. Starts are of a directory that has been used before; every figure is a median. Linux only.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click

from rowtide.deploy.up import Up
from tests.bench.busy import busy
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.processes import cpu_s, memory, processes_of
from tests.bench.sdk import MODES, Plan, measure, start_targets
from tests.bench.sdk_servers import COMMANDS, await_training
from tests.bench.sdk_turns import Sample, medians
from tests.bench.trees import THIS

__all__ = ["Alone", "modes_table"]

SETTLE_S = 20.0
"""As in ``tests.bench.idle``."""
BUSY = 20
BATCH_ROWS = 3200
"""Batches are not shown: a turn has as few of them as it can."""


class Alone(NamedTuple):
    """What a server without requests costs; CPU is a part of one core."""

    start_s: float
    start_after_kill_s: float
    memory_mib: float
    idle_cpu: float
    processes: int


@click.command(context_settings={"show_default": True})
@click.option("--turns", default=3, help="Turns of the puts.")
@click.option("--rows", default=16_000, help="Rows put at 16 connections in a turn.")
@click.option("--starts", default=5, help="Starts of each kind.")
@click.option("--idle-s", default=40.0, help="Seconds for which idle CPU is measured.")
def main(turns: int, rows: int, starts: int, idle_s: float) -> None:
    """Print the table."""
    if shutil.which("go") is None:
        raise click.ClickException("go is not on the PATH: install it.")
    about = circumstances("modes")
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as name, ExitStack() as end:
        where = Path(name)
        alone = {mode: _measure_alone(mode, where, starts, idle_s) for mode in COMMANDS}
        targets = start_targets(MODES, ("sdk",), {THIS.name: THIS}, where, end)
        calm = measure(targets, Plan(rows, BATCH_ROWS, turns, (1, 16)))
        with busy(BUSY):
            loaded = measure(targets, Plan(rows // 4, BATCH_ROWS, turns, (1,), "busy_"))
    click.echo(format_circumstances(about))
    click.echo("\n".join(modes_table(alone, calm, loaded)))


def _measure_alone(mode: str, where: Path, starts: int, idle_s: float) -> Alone:
    with (
        Path(where, f"{mode}.log").open("wb") as log,
        Up(where / mode, options=("--port", "0"), output=log, command=COMMANDS[mode]) as server,
    ):
        server.start()
        await_training(server.pid)
        calm, killed = [], []
        for _ in range(starts):
            server.stop()
            calm.append(_start_s(server))
            server.kill()
            killed.append(_start_s(server))
        time.sleep(SETTLE_S)
        before_s, began_s = cpu_s(server.pid), time.monotonic()
        time.sleep(idle_s)
        idle = (cpu_s(server.pid) - before_s) / (time.monotonic() - began_s)
        size_mib, count = sum(memory(server.pid)), len(processes_of(server.pid))
    return Alone(median(calm), median(killed), size_mib, idle, count)


def _start_s(server: Up) -> float:
    began_s = time.monotonic()
    server.start()
    return time.monotonic() - began_s


def modes_table(
    alone: dict[str, Alone], calm: Sequence[Sample], loaded: Sequence[Sample]
) -> Sequence[str]:
    """Return the lines of the table, a column for each server."""
    lines = [f"| | {' | '.join(MODES)} |", "|---|" + "---:|" * len(MODES)]

    def add(name: str, cells: Sequence[str]) -> None:
        lines.append(f"| {name} | {' | '.join(cells)} |")

    found = [alone.get(mode) for mode in MODES]
    add(
        "warm start to ready; after kill -9",
        [f"{one.start_s:.2f} s; {one.start_after_kill_s:.2f} s" if one else "" for one in found],
    )
    add(
        "memory; idle CPU, of a core; processes",
        [
            f"{one.memory_mib:.0f} MiB; {one.idle_cpu:.2%}; {one.processes}" if one else ""
            for one in found
        ],
    )
    add("put, 1 connection: rate, p50, server's CPU", _puts(calm, 1))
    add("put, 16 connections", _puts(calm, 16))
    add(f"put, 1 connection, beside {BUSY} busy processes", _puts(loaded, 1))
    return lines


def _puts(samples: Sequence[Sample], connections: int) -> list[str]:
    """Return each server's rate, its p50 and the CPU of all its processes for a put."""
    cells = dict.fromkeys(MODES, "")
    for measured, figures in medians(samples, THIS.name).items():
        if (measured.operation, measured.connections) == ("PutRow", connections):
            cpu_us = figures["worker_us"] + figures["broker_us"]
            rate, p50_ms = figures["rate"], figures["p50_ms"]
            cells[measured.server] = f"{rate:,.0f} /s, {p50_ms:.2f} ms, {cpu_us:.0f} us"
    return [*cells.values()]


if __name__ == "__main__":
    main()
