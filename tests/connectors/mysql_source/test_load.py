"""LOAD DATA that is logged as a statement copies the table that it loads, and no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.sql_server import SqlServer
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import Running, following, log_statements, plain

pytestmark = pytest.mark.system

FILE, XML = "2,20\n3,30\n", "<r><row id='2' x='20'/><row id='3' x='30'/></r>"
LOADED = {(1,): {"x": 10}, (2,): {"x": 20}, (3,): {"x": 30}}
BY_COMMA = "FIELDS TERMINATED BY ','"

LOADS = """
LOAD DATA LOCAL INFILE 'file' INTO TABLE a {by}                        | a
LOAD DATA CONCURRENT LOCAL INFILE 'file' INTO TABLE `a` {by}           | a
LOAD DATA LOCAL INFILE 'file' REPLACE INTO TABLE shop.a {by}           | a
LOAD DATA LOCAL INFILE 'file' IGNORE INTO TABLE a CHARACTER SET utf8mb4 {by} (id, @x) SET x = LEFT(@x, 2) | a
LOAD DATA LOCAL INFILE 'file' INTO TABLE a {by} IGNORE 0 LINES (id, x) | a
LOAD XML LOCAL INFILE 'xml' INTO TABLE a ROWS IDENTIFIED BY '<row>'    | a
LOAD DATA LOCAL INFILE 'file' INTO TABLE unwatched.a {by}              |
LOAD DATA LOCAL INFILE 'file' INTO TABLE temporary {by}                |
LOAD DATA LOCAL INFILE 'file' INTO TABLE a {by} (id, @x) SET x = shop.f(@x) | a b
"""  # noqa: E501 - one scenario, one line


class Loads(NamedTuple):
    """A source that follows ``shop`` beside a session that logs statements."""

    running: Running
    server: SqlServer
    folder: Path

    def run(self, *statements: str) -> None:
        """Run statements in a session of their own; files are in the test's folder."""
        folder = f"INFILE '{self.folder}/"
        log_statements(self.server, *(text.replace("INFILE '", folder) for text in statements))

    async def wait_until_copied(self, target: MemoryTarget) -> str:
        """Wait until everything is copied; return the tables of which rows were written."""
        await self.running.settle()
        return " ".join(sorted({row.table for row in target.made}))


@pytest.fixture
def target() -> MemoryTarget:
    return MemoryTarget()


@pytest.fixture
async def loads(
    sql_server: SqlServer, target: MemoryTarget, tmp_path: Path
) -> AsyncIterator[Loads]:
    (tmp_path / "file").write_text(FILE, encoding="utf-8")
    (tmp_path / "xml").write_text(XML, encoding="utf-8")
    sql_server.execute(
        "SET GLOBAL local_infile = ON",
        "DROP DATABASE IF EXISTS unwatched",
        "CREATE DATABASE unwatched",
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, x INT)" for name in ("shop.a", "unwatched.a")),
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "CREATE FUNCTION shop.f(n INT) RETURNS INT DETERMINISTIC NO SQL RETURN n",
        "CREATE FUNCTION shop.g(s TEXT, n INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN INSERT IGNORE INTO shop.b VALUES (n); RETURN n; END",
        "INSERT INTO shop.a VALUES (1, 10)",
        "INSERT INTO shop.b VALUES (1)",
    )
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        yield Loads(running, sql_server, tmp_path)
    sql_server.execute("DROP DATABASE unwatched")


async def test_a_load_copies_the_tables_that_it_may_write(
    loads: Loads, target: MemoryTarget
) -> None:
    made = "CREATE TEMPORARY TABLE temporary (id INT PRIMARY KEY, x INT)"
    for line in LOADS.strip().splitlines():
        statement, copied = (part.strip() for part in line.split("|"))
        loads.run(made, statement.format(by=BY_COMMA))
        assert await loads.wait_until_copied(target) == copied, line
        wanted = loads.server.rows("SELECT id, x FROM shop.a")
        assert plain(target.rows["a"]) == {(key,): {"x": x} for key, x in wanted}, line
        loads.server.execute("DELETE FROM shop.a WHERE id > 1", "UPDATE shop.a SET x = x + 1")
        await loads.running.settle()
        target.made.clear()


async def test_a_load_in_a_transaction_with_rows(loads: Loads, target: MemoryTarget) -> None:
    load = f"LOAD DATA LOCAL INFILE 'file' INTO TABLE a {BY_COMMA}"
    loads.run("BEGIN", "INSERT INTO b VALUES (2)", load, "DELETE FROM b WHERE id = 1", "COMMIT")
    loads.run("BEGIN", load.replace("INTO", "REPLACE INTO"), "ROLLBACK")
    assert await loads.wait_until_copied(target) == "a b"
    assert plain(target.rows["a"]) == LOADED
    assert plain(target.rows["b"]) == {(2,): {}}


@pytest.mark.parametrize(
    ("clauses", "copied"),
    [
        (f"{BY_COMMA} ENCLOSED BY '''' (id, @x) SET x = shop.g('a', @x)", "a b"),
        (f"{BY_COMMA} (id, @x) SET x = shop.g('C:\\', @x)", "a b"),
        (f"{BY_COMMA} (id, @x) SET x = LEFT(@x, 9)", "a"),
    ],
)
async def test_a_load_of_a_session_without_backslash_escapes(
    loads: Loads, target: MemoryTarget, clauses: str, copied: str
) -> None:
    """The server rewrites the clauses with backslashes, but not the rest."""
    mode = "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'"
    loads.run(mode, f"LOAD DATA LOCAL INFILE 'file' INTO TABLE a {clauses}")
    assert await loads.wait_until_copied(target) == copied
    for name in ("a", "b"):
        wanted = loads.server.rows(f"SELECT id FROM shop.{name}")
        assert set(plain(target.rows[name])) == set(wanted)


async def test_a_load_of_a_file_at_the_server(
    mariadb: MariaDB, target: MemoryTarget, tmp_path: Path
) -> None:
    """MySQL's test server allows no file of its own."""
    (tmp_path / "file").write_text(FILE, encoding="utf-8")
    mariadb.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT) ENGINE=Aria")
    mariadb.execute("INSERT INTO shop.a VALUES (1, 10), (3, 0)")
    async with following(mariadb, target) as running:
        await running.settle()
        found = Loads(running, mariadb, tmp_path)
        # The second row fails; the first stays, and the server logs the statement with the error.
        load = f"LOAD DATA INFILE 'file' INTO TABLE a {BY_COMMA}"
        with pytest.raises(Exception, match="Duplicate entry"):
            found.run(load)
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {"x": 10}, (2,): {"x": 20}, (3,): {"x": 0}}
