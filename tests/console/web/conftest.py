"""One server with a console, and an administrator who is logged in, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.consoles import RunningConsole, Visitor, serving_console


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A console beside a server with a local log."""
    with serving_console(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture
def admin(console: RunningConsole) -> Visitor:
    """A user whose key may do everything."""
    return console.log_in()
