"""A pytest plugin: a real Table Store for the tests of an application.

``pip install rowtide`` registers it. docs/guides/testing.md describes its fixtures with examples. A
suite that uses none of them only imports this module, which imports nothing but pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rowtide.testing.clock import Clock
    from rowtide.testing.instance import InstanceAccess
    from rowtide.testing.server import Server

__all__ = ["rowtide_clock", "rowtide_clock_server", "rowtide_instance", "rowtide_server"]


@pytest.fixture(scope="session")
def rowtide_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server: one per session, or per process of pytest-xdist."""
    from rowtide.testing.server import running_server

    with running_server(tmp_path_factory.mktemp("rowtide")) as server:
        yield server


@pytest.fixture(scope="session")
def rowtide_clock_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A second server, whose clock tests advance; the first one keeps the machine's time."""
    from rowtide.testing.server import running_server

    folder = tmp_path_factory.mktemp("rowtide-clock")
    with running_server(folder, "--test-clock") as server:
        yield server


@pytest.fixture
def rowtide_instance(request: pytest.FixtureRequest) -> Iterator[InstanceAccess]:
    """A new instance, dropped after the test; with ``rowtide_clock`` it is on that server."""
    clocked = "rowtide_clock" in request.fixturenames
    server: Server = request.getfixturevalue(
        "rowtide_clock_server" if clocked else "rowtide_server"
    )
    with server.new_instance() as instance:
        yield instance


@pytest.fixture
def rowtide_clock(
    request: pytest.FixtureRequest, rowtide_instance: InstanceAccess
) -> Iterator[Clock]:
    """The clock of the server with this test's ``rowtide_instance``."""
    from rowtide.testing.clock import Clock

    if "rowtide_clock" not in request.fixturenames:
        # The instance is on the other server.
        pytest.fail("Name rowtide_clock among the arguments of the test.", pytrace=False)
    with rowtide_instance.admin() as admin:
        yield Clock(admin)
