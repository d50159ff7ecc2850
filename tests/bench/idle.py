"""What an idle server costs, and which threads take it: ``python -m tests.bench.idle``.

``rowtide up`` runs without a request. The CPU time of each thread of worker and broker is read from
/proc before and after, and summed by the threads' names. Variants are servers with one option
changed, started one after another. Linux only.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import click

from rowtide.deploy.up import Up
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.processes import PROC, processes_of

SETTLE_S = 20.0
"""The worker opens its slots, and Java compiles what the start needed."""
NAMES = 12
"""So many threads are listed; the rest takes less than each of them."""

VARIANTS = {
    "default": (),
    "lease 6 s": ("--lease-ms", "6000"),
    "lease 60 s": ("--lease-ms", "60000"),
}


class _Thread(NamedTuple):
    """A thread of one process of a server; threads of a pool differ by their number."""

    role: str
    name: str
    number: str


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="Time of each measurement.")
@click.option("--variant", "names", multiple=True, type=click.Choice([*VARIANTS]))
@click.option("--command", default="up", show_default=True, type=click.Choice(["up", "dev"]))
def main(seconds: float, names: tuple[str, ...], command: str) -> None:
    """Print a table for each variant."""
    click.echo(format_circumstances(circumstances("idle")))
    for name in names or ("default",):
        click.echo(f"## {name}\n\n| process | thread | percent of a core |\n|---|---|---:|")
        for (process, thread), share in _measure(command, VARIANTS[name], seconds):
            click.echo(f"| {process} | {thread} | {share:.2f} |")


def _measure(
    command: str, options: tuple[str, ...], seconds: float
) -> list[tuple[tuple[str, str], float]]:
    """Return the shares of whole processes, then of their busiest threads, in percent."""
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-idle-") as folder,
        Path(folder, "output").open("wb") as log,
        Up(Path(folder, "data"), options=options, output=log, command=command) as server,
    ):
        server.start()
        time.sleep(SETTLE_S)
        before, began_s = _threads(server.pid), time.monotonic()
        time.sleep(seconds)
        after, took_s = _threads(server.pid), time.monotonic() - began_s
    threads: defaultdict[tuple[str, str], float] = defaultdict(float)
    wholes: defaultdict[tuple[str, str], float] = defaultdict(float)
    for key, used_s in after.items():
        share = (used_s - before.get(key, 0.0)) / took_s * 100
        threads[key.role, key.name] += share
        wholes[key.role, "all"] += share
    busiest = sorted(threads.items(), key=lambda item: -item[1])[:NAMES]
    return [*wholes.items(), *busiest]


def _threads(root: int) -> dict[_Thread, float]:
    """Return the CPU seconds of each thread so far."""
    found = {}
    for process in processes_of(root):
        for task in (PROC / str(process.pid) / "task").glob("*"):
            with suppress(OSError):
                name = (task / "comm").read_text().strip().rstrip("0123456789")
                used_ns = int((task / "schedstat").read_text().split()[0])
                found[_Thread(process.role, name, task.name)] = used_ns / 1e9
    return found


if __name__ == "__main__":
    main()
