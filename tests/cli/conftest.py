"""One server as a process for the module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.deploy.up import Up


@pytest.fixture(scope="module")
def data_dir(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directory of a running ``rowtide up``, whose output is kept beside it."""
    path = tmp_path_factory.mktemp("up") / "data"
    log = path.with_suffix(".log").open("wb")
    with log, Up(path, options=["--port", "0", "--cache-dir", str(cache_dir)], output=log) as up:
        up.start()
        yield path
