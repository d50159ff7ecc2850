"""One server as a process for the module that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import serving


@pytest.fixture(scope="module")
def data_dir(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data directory of a running ``rowtide up``, whose output is kept beside it."""
    folder = tmp_path_factory.mktemp("up")
    with serving(folder, "--cache-dir", str(cache_dir)):
        yield folder / "data"
