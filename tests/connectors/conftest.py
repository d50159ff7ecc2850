"""A server whose tables connectors read and write; it runs none itself, the tests do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rowtide.deploy.up import Ready, Up
from rowtide.stream.changes.endpoint import Endpoint
from tests.api.conftest import client, make_table

__all__ = ["client", "endpoint", "make_table", "server"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that lives as long as the test run: a process of its own."""
    folder = tmp_path_factory.mktemp("server")
    options = ["--port", "0", "--table-operations-per-s", "0", "--connectors", "false"]
    with (
        (folder / "output").open("wb") as output,
        Up(folder / "data", options=options, output=output) as up,
    ):
        yield up.start()


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What sources ask."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked
