"""The servers of MariaDB for other tests do not affect each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.servers.mariadb import MariaDB, NotToBeHad, find_programs

pytestmark = pytest.mark.system


def test_a_server_that_starts_takes_no_temporary_table_from_another(
    cache_dir: Path, tmp_path: Path
) -> None:
    """In a shared folder it does. The other server's next read of the catalog may then end it."""
    try:
        find_programs(cache_dir)
    except NotToBeHad as error:
        pytest.skip(str(error))
    with MariaDB(tmp_path / "first", cache_dir) as first, first.connect() as session:
        cursor = session.cursor()
        cursor.execute("CREATE TEMPORARY TABLE mysql.kept (v TEXT) ENGINE=Aria")
        cursor.execute("INSERT INTO mysql.kept VALUES ('here')")
        cursor.execute("FLUSH TABLES")  # Else it stays open, and is there without its files.
        with MariaDB(tmp_path / "second", cache_dir):
            pass
        cursor.execute("SELECT v FROM mysql.kept")
        assert list(cursor.fetchall()) == [("here",)]
        cursor.execute("DROP TEMPORARY TABLE mysql.kept")
