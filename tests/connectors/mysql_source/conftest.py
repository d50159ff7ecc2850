"""Real servers for the tests of the source, and some of their own for those that hurt them.

Tests that take ``sql_server`` run with MariaDB and with MySQL, those that take ``mariadb`` or
``mysql`` with one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from demo.servers.debian import NotToBeHad
from demo.servers.sql_server import QUICK, SqlServer
from rowtide.connectors.sources.copying import checkpoint_keeper
from tests.connectors.runtime.conftest import connector, processes, rows
from tests.connectors.shared_servers import KINDS

__all__ = ["connector", "processes", "rows"]

MakeServer = Callable[..., SqlServer]


@pytest.fixture(autouse=True)
def keep_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store checkpoints more often: tests read from them how far the source is."""
    monkeypatch.setattr(checkpoint_keeper, "KEEP_S", 0.05)


@pytest.fixture
def make_mariadb(tmp_path: Path, cache_dir: Path) -> Iterator[MakeServer]:
    """Start servers that end with the test."""
    with _maker("mariadb", tmp_path, cache_dir) as make:
        yield make


@pytest.fixture
def make_mysql(tmp_path: Path, cache_dir: Path) -> Iterator[MakeServer]:
    """Start servers that end with the test."""
    with _maker("mysql", tmp_path, cache_dir) as make:
        yield make


@pytest.fixture(params=KINDS)
def make_server(
    request: pytest.FixtureRequest, tmp_path: Path, cache_dir: Path
) -> Iterator[MakeServer]:
    """Start servers of each kind that end with the test."""
    with _maker(request.param, tmp_path, cache_dir) as make:
        yield make


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def make_server_slow(
    request: pytest.FixtureRequest, tmp_path: Path, cache_dir: Path
) -> Iterator[MakeServer]:
    """The same, for tests that start them again and again."""
    with _maker(request.param, tmp_path, cache_dir) as make:
        yield make


@pytest.fixture
def mariadb(shared_mariadb: SqlServer) -> Iterator[SqlServer]:
    """The server of the run, with an empty database ``shop``."""
    with _with_shop(shared_mariadb):
        yield shared_mariadb


@pytest.fixture
def mysql(shared_mysql: SqlServer) -> Iterator[SqlServer]:
    """The server of the run, with an empty database ``shop``."""
    with _with_shop(shared_mysql):
        yield shared_mysql


@pytest.fixture(params=KINDS)
def sql_server(request: pytest.FixtureRequest) -> SqlServer:
    """Each of both."""
    found: SqlServer = request.getfixturevalue(request.param)
    return found


@contextmanager
def _with_shop(server: SqlServer) -> Iterator[None]:
    server.execute("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    yield
    server.execute("DROP DATABASE IF EXISTS shop")


@contextmanager
def _maker(kind: str, folder: Path, cache_dir: Path) -> Iterator[MakeServer]:
    with ExitStack() as stack:

        def make(*options: str, name: str = "server") -> SqlServer:
            return stack.enter_context(_start_server(kind, folder / name, cache_dir, options))

        yield make


@contextmanager
def _start_server(
    kind: str, folder: Path, cache_dir: Path, options: tuple[str, ...]
) -> Iterator[SqlServer]:
    server = KINDS[kind](folder, cache_dir, options=(*QUICK, *options))
    try:
        server.start()
    except NotToBeHad as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.kill()
