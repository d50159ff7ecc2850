"""A server that runs as a process of its own, and an endpoint to ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rowtide.deploy.up import Ready
from rowtide.stream.endpoint import Endpoint
from tests.api.conftest import client, make_table, server

__all__ = ["client", "endpoint", "make_table", "server"]


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What sources ask."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked
