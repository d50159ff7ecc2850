"""The run's server of each kind, and a database that no other test uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from demo.servers import mariadb, mysql
from demo.servers.debian import NotToBeHad
from demo.servers.sql_server import SqlServer
from tests.connectors.shared_servers import KINDS

MakeServer = Callable[[Path, Path], SqlServer]


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def make_server(request: pytest.FixtureRequest, cache_dir: Path) -> MakeServer:
    """What makes a server of a kind, for tests that start it often."""
    return _maker(request.param, cache_dir)


@pytest.fixture(scope="session", params=KINDS)
def sql_server(request: pytest.FixtureRequest) -> SqlServer:
    """The run's server of each kind."""
    found: SqlServer = request.getfixturevalue(f"shared_{request.param}")
    return found


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
def database(sql_server: SqlServer) -> Iterator[str]:
    """The name of an empty database."""
    name = f"d{uuid4().hex}"
    sql_server.execute(f"CREATE DATABASE {name}")
    yield name
    sql_server.execute(f"DROP DATABASE {name}")
