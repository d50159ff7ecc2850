"""One real OpenSearch for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers.opensearch import OpenSearch
from demo.servers.search_server import SearchServer
from rowtide.deploy.kafka.errors import JarsUnavailable


@pytest.fixture(scope="session")
def search_server(
    cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SearchServer]:
    """Start it once for the run."""
    running = OpenSearch(tmp_path_factory.mktemp("opensearch"), cache_dir)
    try:
        running.start()
    except JarsUnavailable as error:
        pytest.skip(f"OpenSearch can't be fetched: {error}")
    try:
        yield running
    finally:
        running.stop()
