"""Servers for a test, all of them ended when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.system.server import Server

MakeServer = Callable[..., Server]


@pytest.fixture
def make_server(tmp_path: Path, cache_dir: Path) -> Iterator[MakeServer]:
    """Make servers, by default on one and the same directory."""
    with ExitStack() as stack:

        def make(
            *options: str, data_dir: Path = tmp_path / "data", command: tuple[str, ...] = ()
        ) -> Server:
            server = Server(data_dir, cache_dir, options=options, command=command)
            stack.callback(server.stop_all)
            return server

        yield make


@pytest.fixture
def make_worker(make_server: MakeServer, broker: str, tmp_path: Path) -> MakeServer:
    """Make servers on the run's broker, each on a directory and under topics of its own.

    The broker outlives their kills. To start an embedded one takes most of a test's CPU time.
    """

    def make(*options: str) -> Server:
        place = tmp_path / f"worker-{uuid4().hex[:8]}"
        return make_server("--kafka", broker, *options, data_dir=place)

    return make
