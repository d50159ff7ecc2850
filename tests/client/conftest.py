"""A client of either form, on an instance of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.testing.instance import InstanceAccess
from tests.client.forms import FORMS, Form, open_form
from tests.support.access import access_of

__all__ = ["access", "form"]


@pytest.fixture
def access(rowtide_instance: InstanceAccess) -> dict[str, Any]:
    """How a client reaches the test's instance."""
    return access_of(rowtide_instance)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, access: dict[str, Any]) -> Iterator[Form]:
    """A client."""
    with open_form(request.param, **access) as client:
        yield client
