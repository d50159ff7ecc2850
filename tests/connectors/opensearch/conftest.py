"""Real search servers for the tests of this folder, one of each distribution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers.elasticsearch import Elasticsearch
from demo.servers.opensearch import OpenSearch
from demo.servers.search_server import SearchServer
from rowtide.deploy.kafka.errors import JarsUnavailable


@pytest.fixture(
    scope="session", params=[OpenSearch, pytest.param(Elasticsearch, marks=pytest.mark.slow)]
)
def search_server(
    request: pytest.FixtureRequest, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SearchServer]:
    """Start it once for the run. Against Elasticsearch the tests are those of ``make test-all``."""
    kind: type[SearchServer] = request.param
    running = kind(tmp_path_factory.mktemp(kind.distribution.name), cache_dir)
    try:
        running.start()
    except JarsUnavailable as error:
        pytest.skip(f"{kind.__name__} can't be fetched: {error}")
    try:
        yield running
    finally:
        running.stop()
