"""What every test may use: one embedded broker for the whole run, a seed, Hypothesis's profile."""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from rowtide.core import native
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from tests.support.copies import end_copiers
from tests.support.searches import examples

# On a shared machine a correct example may be slow: time is no reason to fail.
settings.register_profile(
    "rowtide",
    max_examples=examples(30, 100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("rowtide")

# A worker that gets no CPU for a lease answers reads with "unavailable", as it must. Tests that are
# not about that give it more than the default.
os.environ.setdefault("ROWTIDE_LEASE_MS", "6000")

# A console takes half a second of CPU to start: tests that are about it ask for it.
os.environ.setdefault("ROWTIDE_CONSOLE", "false")

SLOW_S_MAX = 3 * 3600
"""The time-out of a test marked slow. All others have the one of pyproject.toml."""


SERVER = ("kafka", "system")
"""Marks of tests that start servers. Makefile looks for them in the text of each file."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without looking for garbage, and keep what was collected out of later looks.

    All of it lives to the end of the run. Visiting it again and again took a third of the
    collection's CPU time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that are marked slow their own time-out.

    Fail where a test has a server's mark that its file does not name: ``make test`` would miss it.
    """
    for item in items:
        if any(map(item.get_closest_marker, SERVER)):
            _require_mark_in_text(item.path)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_S_MAX))


def pytest_unconfigure() -> None:
    """End what processes of tests were copied from."""
    end_copiers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """With ``--dist loadfile`` or ``loadgroup``, keep tests together that share a costly server."""
    if config.getvalue("dist") not in ("loadfile", "loadgroup"):
        return None
    from tests.support.distribution import LoadGroupsScheduling, LoadServersScheduling

    by_files = config.getvalue("dist") == "loadfile"
    return LoadServersScheduling(config, log) if by_files else LoadGroupsScheduling(config, log)


@cache
def _require_mark_in_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not any(f"mark.{name}" in text for name in SERVER):
        raise pytest.UsageError(f"{path}: name mark.kafka or mark.system in the test's own file")


# The whole suite runs both ways; servers that tests start read the same variable.
PURE = os.environ.get("ROWTIDE_PURE") == "1"
native.choose(pure=PURE)


@pytest.fixture
def pure() -> Iterator[None]:
    """Do without kernels: what they stand before is what the test is of."""
    native.choose(pure=True)
    yield
    native.choose(pure=PURE)


@pytest.fixture(scope="session")
def cache_dir() -> Path:
    """Where jars and the AOT cache are: ROWTIDE_CACHE, else the user's own cache."""
    named = os.environ.get("ROWTIDE_CACHE")
    return Path(named) if named else default_cache_dir(os.environ, sys.platform)


@pytest.fixture(scope="session")
def broker(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap address of a real broker that lives as long as the test run."""
    config = EmbeddedConfig(tmp_path_factory.mktemp("kafka"), cache_dir)
    with EmbeddedBroker(config) as running:
        yield running.bootstrap


@pytest.fixture
def seed() -> int:
    """A random seed, printed when the test fails."""
    chosen = int(os.environ.get("ROWTIDE_SEED", random.randrange(10**6)))
    print(f"ROWTIDE_SEED={chosen}")  # noqa: T201  # What repeats a failed run.
    return chosen
