"""A server that leaves its connectors to the processes of a test: an index is in one's folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowtide.deploy.up import Ready, Up


@pytest.fixture(scope="session")
def lone_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach it."""
    folder = tmp_path_factory.mktemp("lone")
    options = ["--port", "0", "--connectors", "false"]
    with (
        (folder / "output").open("wb") as output,
        Up(folder / "data", options=options, output=output) as up,
    ):
        yield up.start()
