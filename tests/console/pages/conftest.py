"""One console for the tests of pages that show rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowtide.client import Client
from tests.support.consoles import RunningConsole, Visitor, serving_console


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A server with its console, which hides one column."""
    folder = tmp_path_factory.mktemp("console")
    with serving_console(folder, "--console-hide", "orders.card") as running:
        yield running


@pytest.fixture(scope="module")
def store(console: RunningConsole) -> Iterator[Client]:
    """A client of the same server."""
    with Client(**console.ready._asdict()) as client:
        yield client


@pytest.fixture(scope="module")
def visitor(console: RunningConsole) -> Visitor:
    """A user who is logged in."""
    return console.log_in()
