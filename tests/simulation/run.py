"""Runs any number of seeds: ``python -m tests.simulation.run --seeds 1000 --from 1 --jobs 2``.

It prints what happened how often, and each seed that broke an invariant with the end of its trace.
``--from`` may be given several times: each begins a series of its own.
One seed alone (``--seeds 1 --from 4711 --trace``) shows its run.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import click

from tests.simulation.program import STEPS, Found, Run, simulate

__all__ = ["main"]

SHOWN = 60
"""Lines of a failed run's trace."""


Runs = Callable[[int, int, int], Iterable[Run]]
"""Runs (first seed, number of seeds, steps)."""


@click.command()
@click.option("--seeds", default=200, show_default=True, help="How many of each series.")
@click.option(
    "--from", "firsts", default=[1], show_default=True, multiple=True, help="The first of a series."
)
@click.option("--jobs", default=1, show_default=True, help="Processes.")
@click.option("--steps", default=STEPS, show_default=True, help="Actions of a run.")
@click.option("--trace", is_flag=True, help="Print the trace of the last seed.")
@click.option("--shorten", is_flag=True, help="Find the fewest actions after which a seed fails.")
def main(
    seeds: int, firsts: Sequence[int], jobs: int, steps: int, trace: bool, shorten: bool
) -> None:
    """Run seeds; the exit code is 1 where one of them broke an invariant."""
    failed: list[int] = []
    with _pool(jobs) as runs:
        for first in firsts:
            began_s = time.monotonic()
            series = _run_series(runs(first, seeds, steps), steps if shorten else 0)
            took_s = time.monotonic() - began_s
            if trace:
                click.echo("\n".join(series.last))
            totals = ", ".join(f"{kind} {number}" for kind, number in sorted(series.counts.items()))
            click.echo(f"seeds {first} to {first + seeds - 1}: {totals}")
            click.echo(f"all that happened: {series.digest}")
            lost = series.failed
            click.echo(f"{seeds} runs in {took_s:.0f} s, {len(lost)} failed {lost or ''}".rstrip())
            failed += lost
    sys.exit(bool(failed))


class Series(NamedTuple):
    """What happened in runs of consecutive seeds. ``last`` is the trace of the last one."""

    counts: Counter[str]
    digest: str
    failed: list[int]
    last: list[str]


def _run_series(runs: Iterable[Run], shorten_to: int) -> Series:
    """Return the result of runs. ``shorten_to`` is the number of actions of a run, or 0."""
    counts: Counter[str] = Counter()
    everything = hashlib.sha256()
    failed: list[int] = []
    last: list[str] = []
    for run in runs:
        counts += run.counts
        everything.update(run.hash.encode())
        if run.failure:
            failed.append(run.seed)
            run = _shorten(run, shorten_to) if shorten_to else run
            click.echo("\n".join(("", *run.lines[-SHOWN:], run.failure)))
        last = run.lines
    return Series(counts, everything.hexdigest(), failed, last)


@contextmanager
def _pool(jobs: int) -> Iterator[Runs]:
    if jobs == 1:
        yield lambda first, seeds, steps: map(
            _run_seed, ((s, steps) for s in range(first, first + seeds))
        )
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda first, seeds, steps: pool.map(
            _run_seed, ((s, steps) for s in range(first, first + seeds)), chunksize=10
        )


def _shorten(run: Run, steps: int) -> Run:
    """Return the run of the fewest actions that fails: the actions of a seed do not change."""
    for fewer in range(1, steps):
        shorter = _run_seed((run.seed, fewer))
        if shorter.failure:
            shorter.failure += f" (after {fewer} actions: --steps {fewer})"
            return shorter
    return run


def _run_seed(asked: tuple[int, int]) -> Run:
    seed, steps = asked
    try:
        return simulate(seed, steps)
    except Found as found:
        return found.run


if __name__ == "__main__":
    main()
