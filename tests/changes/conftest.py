"""Readers of changes in this process, on a server that runs as a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import ChangeSource
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready, Up
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from tests.api.conftest import MakeTable, client, make_table
from tests.support.copies import launch
from tests.workers.conftest import Retrying

__all__ = [
    "MakeSource",
    "admin",
    "client",
    "cluster",
    "endpoint",
    "make_table",
    "server",
    "source",
    "table",
]

MakeSource = Callable[..., ChangeSource]
PREFIX = "changes"
SLOTS = 2

STREAM = pb.StreamSpecification(enable_stream=True, expiration_time=24)


@pytest.fixture(scope="session")
def server(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server on a broker that readers know too."""
    folder = tmp_path_factory.mktemp("server")
    options = ["--port", "0", "--kafka", broker, "--topic-prefix", PREFIX, "--slots", str(SLOTS)]
    with (folder / "output").open("wb") as output:
        options += ["--table-operations-per-s", "0"]
        with Up(folder / "data", options=options, output=output, launch=launch) as up:
            yield up.start()


@pytest.fixture
async def cluster(broker: str) -> AsyncIterator[KafkaCluster]:
    """The broker, as readers inside the platform reach it."""
    async with KafkaCluster(KafkaConfig(broker, topic_prefix=PREFIX)) as found:
        yield found


@pytest.fixture(params=["api", "kafka"])
def source(request: pytest.FixtureRequest, endpoint: Endpoint, cluster: KafkaCluster) -> MakeSource:
    """Make a source of a table's changes, of either kind."""

    def make(table: str, **wanted: Any) -> ChangeSource:
        api = ApiSource(endpoint, table, **wanted)
        return api if request.param == "api" else KafkaSource(api, cluster)

    return make


@pytest.fixture
def admin(server: Ready) -> Iterator[ProtocolClient]:
    """A client that repeats what SDKs repeat."""
    with Retrying(**server._asdict()) as connected:
        yield connected


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What readers ask."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked


@pytest.fixture
def table(make_table: MakeTable) -> str:
    """A table with a stream."""
    return make_table(stream=STREAM)
