"""Names of topics that no other test uses."""

from __future__ import annotations

from uuid import uuid4

import pytest


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"t-{uuid4().hex}"
