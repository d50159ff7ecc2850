"""One real MariaDB for the tests of this folder, and a database that no other test uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from demo.servers.mariadb import MariaDB, NotToBeHad, find_programs


@pytest.fixture(scope="session")
def mariadb_programs(cache_dir: Path) -> None:
    """Skip where a MariaDB is neither here nor to be had."""
    try:
        find_programs(cache_dir)
    except NotToBeHad as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def mariadb(
    mariadb_programs: None, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MariaDB]:
    """A server that lives as long as the test run."""
    with MariaDB(tmp_path_factory.mktemp("mariadb"), cache_dir) as running:
        yield running


@pytest.fixture
def database(mariadb: MariaDB) -> str:
    """The name of an empty database."""
    name = f"d{uuid4().hex}"
    mariadb.execute(f"CREATE DATABASE {name}")
    return name
