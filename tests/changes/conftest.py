"""Readers of changes in this process, on a server that runs as a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rowtide.cli.client import Client
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from rowtide.stream.endpoint import Endpoint
from tests.api.conftest import MakeTable, client, make_table, server
from tests.workers.conftest import Retrying

__all__ = ["admin", "client", "endpoint", "make_table", "server", "table"]

STREAM = pb.StreamSpecification(enable_stream=True, expiration_time=24)


@pytest.fixture
def admin(server: Ready) -> Iterator[Client]:
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
