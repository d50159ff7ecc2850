"""A real server of each kind for the tests of this folder, and a database that no other uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from demo.servers import mariadb, mysql
from demo.servers.debian import NotToBeHad
from demo.servers.sql_server import SqlServer

MakeServer = Callable[[Path, Path], SqlServer]


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def make_server(request: pytest.FixtureRequest, cache_dir: Path) -> MakeServer:
    """What makes a server of a kind, for tests that start it often."""
    return _maker(request.param, cache_dir)


@pytest.fixture(scope="session", params=["mariadb", "mysql"])
def sql_server(
    request: pytest.FixtureRequest, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlServer]:
    """A server that lives as long as the tests of its kind."""
    make = _maker(request.param, cache_dir)
    with make(tmp_path_factory.mktemp("server"), cache_dir) as running:
        yield running


def _maker(kind: str, cache_dir: Path) -> MakeServer:
    """Return what makes a server; skip where its programs are neither here nor to be had."""
    try:
        if kind == "mysql":
            mysql.find_program(cache_dir)
            return mysql.MySQL
        mariadb.find_programs(cache_dir)
    except NotToBeHad as error:
        pytest.skip(str(error))
    return mariadb.MariaDB


@pytest.fixture
def database(sql_server: SqlServer) -> str:
    """The name of an empty database."""
    name = f"d{uuid4().hex}"
    sql_server.execute(f"CREATE DATABASE {name}")
    return name
