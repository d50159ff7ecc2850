"""A real PostgreSQL for the tests of the source, and one of its own for those that hurt it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.sources.copying import checkpoint_keeper
from rowtide.connectors.sources.postgres import follower
from tests.connectors.runtime.conftest import connector, processes, rows
from tests.connectors.shared_servers import QUICK_POSTGRES

__all__ = ["connector", "processes", "rows"]

MakeServer = Callable[..., PostgreSQL]


@pytest.fixture(autouse=True)
def do_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store checkpoints and read the catalog more often: tests read from them how far the
    source is.
    """
    monkeypatch.setattr(checkpoint_keeper, "KEEP_S", 0.05)
    monkeypatch.setattr(follower, "LOOK_S", 0.5)


@pytest.fixture
def make_postgres(tmp_path: Path) -> Iterator[MakeServer]:
    """Start servers that end with the test."""
    with ExitStack() as stack:

        def make(*settings: str, name: str = "postgres") -> PostgreSQL:
            server = PostgreSQL(tmp_path / name, settings=(*QUICK_POSTGRES, *settings))
            stack.enter_context(server)
            server.execute("CREATE SCHEMA shop")
            return server

        yield make


@pytest.fixture
def postgres(shared_postgres: PostgreSQL) -> Iterator[PostgreSQL]:
    """The server of the run, with a fresh database that has an empty schema ``shop``."""
    server = shared_postgres
    server.database = "postgres"
    server.execute("CREATE DATABASE shop")
    server.database = "shop"
    try:
        server.execute("CREATE SCHEMA shop")
        yield server
    finally:
        server.database = "postgres"
        server.drop_slots()
        server.execute("DROP DATABASE shop WITH (FORCE)")
