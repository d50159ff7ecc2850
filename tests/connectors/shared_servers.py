"""Real servers of other kinds, each started once for a run by the first test that needs it.

``conftest.py`` of this folder imports the fixtures, and nothing else does: a fixture that two files
``conftest.py`` import is two fixtures, each with a server of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.servers.clickhouse import Clickhouse, find_program
from demo.servers.debian import NotToBeHad
from demo.servers.mariadb import MariaDB
from demo.servers.mysql import MySQL
from demo.servers.postgres import PostgreSQL
from demo.servers.sql_server import QUICK, SqlServer

__all__ = [
    "KINDS",
    "QUICK_POSTGRES",
    "clickhouse",
    "clickhouse_program",
    "shared_mariadb",
    "shared_mysql",
    "shared_postgres",
]

KINDS = {"mariadb": MariaDB, "mysql": MySQL}

QUICK_POSTGRES = ("fsync=off", "full_page_writes=off")
"""No test takes the machine's power: what a killed server has written, the machine still has."""


@pytest.fixture(scope="session")
def shared_mariadb(
    cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlServer]:
    """A MariaDB for the whole run."""
    yield from _run_server("mariadb", tmp_path_factory.mktemp("mariadb"), cache_dir)


@pytest.fixture(scope="session")
def shared_mysql(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    """A MySQL for the whole run."""
    yield from _run_server("mysql", tmp_path_factory.mktemp("mysql"), cache_dir)


def _run_server(kind: str, folder: Path, cache_dir: Path) -> Iterator[SqlServer]:
    """Run a server; skip where its programs are neither here nor to be had."""
    server = KINDS[kind](folder, cache_dir, options=QUICK)
    try:
        server.start()
    except NotToBeHad as error:
        pytest.skip(str(error))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def shared_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSQL]:
    """A PostgreSQL for the whole run."""
    with PostgreSQL(tmp_path_factory.mktemp("postgres"), settings=QUICK_POSTGRES) as server:
        yield server


@pytest.fixture(scope="session")
def clickhouse_program(cache_dir: Path) -> Path:
    """The cache that has the program; tests are skipped where it is not to be had."""
    try:
        find_program(cache_dir)
    except NotToBeHad as error:
        pytest.skip(f"No ClickHouse: {error}")
    return cache_dir


@pytest.fixture(scope="session")
def clickhouse(
    clickhouse_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clickhouse]:
    """A ClickHouse for the whole run."""
    with Clickhouse(tmp_path_factory.mktemp("clickhouse"), clickhouse_program) as server:
        yield server
