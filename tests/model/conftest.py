"""One server for the model's whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.world import World
from tests.support.servers import LOG, LOG_OPTIONS


@pytest.fixture(scope="session")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Iterator[World]:
    """Return a server whose clock tests set. A broker, where it has one, outlives its restarts."""
    where = ("--kafka", request.getfixturevalue("broker")) if LOG == "kafka" else LOG_OPTIONS
    started = World.start(tmp_path_factory.mktemp("model"), cache_dir, *where)
    yield started
    started.stop()
