"""A server for connectors to read and write. It runs no connectors; the tests do. Beside it are the
servers of other kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rowtide.client.endpoint import Endpoint
from rowtide.deploy.up import Ready
from tests.api.conftest import client, make_table
from tests.connectors.shared_servers import (
    clickhouse,
    clickhouse_program,
    shared_mariadb,
    shared_mysql,
    shared_postgres,
)
from tests.support.servers import serving

__all__ = [
    "clickhouse",
    "clickhouse_program",
    "client",
    "endpoint",
    "make_table",
    "server",
    "shared_mariadb",
    "shared_mysql",
    "shared_postgres",
]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that lives as long as the test run: a process of its own."""
    options = ("--table-operations-per-s", "0", "--connectors", "false")
    with serving(tmp_path_factory.mktemp("server"), *options) as ready:
        yield ready


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What sources ask."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked
