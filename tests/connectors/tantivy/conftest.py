"""A server that leaves its connectors to the processes of a test: an index is in one's folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowtide.deploy.up import Ready
from tests.support.servers import serving


@pytest.fixture(scope="session")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach it."""
    with serving(tmp_path_factory.mktemp("lone"), "--connectors", "false") as ready:
        yield ready
