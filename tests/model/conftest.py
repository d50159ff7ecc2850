"""One server for the model's whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model.world import World


@pytest.fixture(scope="session")
def world(
    tmp_path_factory: pytest.TempPathFactory, cache_dir: Path, broker: str
) -> Iterator[World]:
    """Return a server whose clock tests set, beside a broker that outlives its restarts."""
    started = World.started(tmp_path_factory.mktemp("model"), cache_dir, broker)
    yield started
    started.stop()
