"""A client of either form, on an instance of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.testing.instance import InstanceAccess
from tests.client.forms import FORMS, Form, open_form

__all__ = ["access", "form"]


@pytest.fixture
def access(rowtide_instance: InstanceAccess) -> dict[str, Any]:
    """How a client reaches the test's instance."""
    return {
        "endpoint": rowtide_instance.endpoint,
        "instance": rowtide_instance.name,
        "access_key_id": rowtide_instance.access_key_id,
        "access_key_secret": rowtide_instance.access_key_secret,
    }


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, access: dict[str, Any]) -> Iterator[Form]:
    """A client."""
    with open_form(request.param, **access) as client:
        yield client
