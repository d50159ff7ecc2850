"""Server and model, driven by the same random steps: every answer, every row, every record.

Driven are writes and batches, atomic or not, with conditions and returned values; reads of rows,
batches and ranges; bulk imports and exports; local transactions and their time-out; AUTO_INCREMENT;
options, streams, defined columns and the end of a table, also under open transactions; the stream's
records, their originals and expiry; the reclaimer; a jumping clock; restarts and kill -9.

A run goes round by round, each with a seed of its own: the next number after the one before. What
fails says its seed; ROWTIDE_MODEL_SEED begins with it. Steps are counted over all runs in pytest's
cache; ROWTIDE_MODEL_STEPS is how many the long test takes.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import row_model, table_model
from tests.model.machine import StoreMachine
from tests.model.world import World

pytestmark = pytest.mark.system

SHORT_S = 8.0
LONG_STEPS = 20_000
MODEL_LINES_MAX = 300
"""Of the two modules that are the model, without empty ones."""
WANTED_STEPS = 100_000
"""Steps without a difference, counted over runs, that a release wants."""

SETTINGS = settings(
    max_examples=10,  # The first is the simplest there is, a hundred times the same step.
    stateful_step_count=100,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


def run_round(world: World, number: int) -> None:
    """Run a few examples of one seed."""

    class Machine(StoreMachine):
        """A machine of this round."""

    Machine.world = world
    try:
        run_state_machine_as_test(seed(number)(Machine), settings=SETTINGS)
    except BaseException as error:
        error.add_note(f"Run it again with ROWTIDE_MODEL_SEED={number}.")
        raise


def run_rounds(world: World, config: pytest.Config, goes_on: Callable[[int], bool]) -> str:
    """Run rounds as long as ``goes_on`` says so of the steps taken; return how many there were."""
    first = number = int(os.environ.get("ROWTIDE_MODEL_SEED") or secrets.randbelow(10**9))
    before = world.steps
    while goes_on(world.steps - before):
        run_round(world, number)
        number += 1
    steps = world.steps - before
    total = count_steps(config, steps)
    return (
        f"seeds {first} to {number - 1}: {steps} steps, 0 differences; {total}\n"
        f"steps: {format_counts(world.counts)}\nanswers: {format_counts(world.answers)}"
    )


def format_counts(counts: dict[str, int]) -> str:
    """Return counts in one line."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def count_steps(config: pytest.Config, steps: int) -> str:
    """Add to the steps of all runs, and say how many there are."""
    cache = getattr(config, "cache", None)
    if cache is None:
        return "not counted: this run has no cache"
    total = cache.get("rowtide/model_steps", 0) + steps
    cache.set("rowtide/model_steps", total)
    return f"{total} of {WANTED_STEPS} over all runs"


@pytest.fixture
def tell(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], None]:
    """Return what prints a line whether or not the test passes."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None

    def line(text: str) -> None:
        with capsys.disabled():
            reporter.write_line(f"\n{text}")

    return line


def test_server_and_model_agree(
    world: World, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    end_s = time.monotonic() + SHORT_S
    tell(run_rounds(world, request.config, lambda _: time.monotonic() < end_s))


@pytest.mark.slow
def test_server_and_model_agree_for_long(
    world: World, request: pytest.FixtureRequest, tell: Callable[[str], None]
) -> None:
    wanted = int(os.environ.get("ROWTIDE_MODEL_STEPS", LONG_STEPS))
    tell(run_rounds(world, request.config, lambda steps: steps < wanted))


def test_the_model_is_small_and_knows_nothing_of_the_server() -> None:
    texts = [Path(str(module.__file__)).read_text() for module in (row_model, table_model)]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    assert len(lines) <= MODEL_LINES_MAX
    assert [line for line in lines if re.search(r"import.*rowtide|from rowtide", line)] == [
        "from rowtide.client.wire_row import Change, Delete, Put",
        "from rowtide.client.wire_row import Change, Delete, Increment, Put",
    ], "the values that a request is made of, and no more"
