"""An endpoint to ask the server that connectors write to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rowtide.deploy.up import Ready
from rowtide.stream.endpoint import Endpoint


@pytest.fixture
async def endpoint(server: Ready) -> AsyncIterator[Endpoint]:
    """What sources ask."""
    async with Endpoint(**server._asdict()) as asked:
        yield asked
