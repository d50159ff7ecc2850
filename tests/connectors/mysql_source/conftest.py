"""A real MariaDB for the tests of the source, and one of its own for those that hurt it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from demo.servers.mariadb import QUICK, MariaDB, NotToBeHad
from rowtide.connectors.mysql import source_copy
from tests.connectors.runtime.conftest import connector, processes, rows

__all__ = ["connector", "processes", "rows"]

MakeServer = Callable[..., MariaDB]


@pytest.fixture(autouse=True)
def keep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint tells a test how far the source is: let it come sooner."""
    monkeypatch.setattr(source_copy, "KEEP_S", 0.05)


@pytest.fixture
def make_mariadb(tmp_path: Path, cache_dir: Path) -> Iterator[MakeServer]:
    """Start servers that end with the test."""
    with ExitStack() as stack:

        def make(*options: str, name: str = "mariadb") -> MariaDB:
            return stack.enter_context(_started(tmp_path / name, cache_dir, options))

        yield make


@pytest.fixture(scope="session")
def shared_mariadb(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server for the whole run."""
    with _started(tmp_path_factory.mktemp("mariadb"), cache_dir, ()) as server:
        yield server


@pytest.fixture
def mariadb(shared_mariadb: MariaDB) -> Iterator[MariaDB]:
    """The server of the run, with an empty database ``shop``."""
    shared_mariadb.execute("CREATE OR REPLACE DATABASE shop")
    yield shared_mariadb
    shared_mariadb.execute("DROP DATABASE IF EXISTS shop")


@contextmanager
def _started(folder: Path, cache_dir: Path, options: tuple[str, ...]) -> Iterator[MariaDB]:
    server = MariaDB(folder, cache_dir, options=(*QUICK, *options))
    try:
        server.start()
    except NotToBeHad as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.kill()
