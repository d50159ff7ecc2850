"""Statements that are logged instead of rows, and write more than the table that they name."""

from __future__ import annotations

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.sql_server import SqlServer
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import Running, following, log_statements, plain

pytestmark = pytest.mark.system

WRITES = (
    "RETURNS INT DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO shop.b () VALUES (); RETURN 1"
)
MADE = [
    "DROP DATABASE IF EXISTS unwatched",
    "CREATE DATABASE unwatched",
    "CREATE TABLE unwatched.w (id INT PRIMARY KEY)",
    "CREATE TABLE shop.a (id INT PRIMARY KEY)",
    "CREATE TABLE shop.b (id INT AUTO_INCREMENT PRIMARY KEY)",
    "INSERT INTO shop.a VALUES (1), (2)",
    f"CREATE FUNCTION shop.f() {WRITES}; END",
    "CREATE VIEW shop.v AS SELECT shop.f() AS n",
]

OF_A_VIEW = """
INSERT INTO unwatched.w SELECT n FROM shop.v
INSERT INTO unwatched.w SELECT a.id + v.n FROM shop.a, shop.v
INSERT INTO unwatched.w SELECT a.id FROM shop.a JOIN (shop.a AS c, shop.v) ON a.id = v.n LIMIT 1
INSERT INTO unwatched.w VALUES ((SELECT MAX(n) FROM shop.v))
UPDATE unwatched.w SET id = (SELECT n FROM shop.v) WHERE id = 0
DELETE FROM unwatched.w WHERE id IN (SELECT n FROM shop.v)
"""
OF_MARIADB = """\
CREATE TABLE unwatched.n AS SELECT n FROM shop.v
CREATE TEMPORARY TABLE unwatched.n AS SELECT n FROM shop.v
"""
"""MySQL makes no table of a function that writes."""
OF_MYSQL = "INSERT INTO unwatched.w TABLE shop.v"


async def _is_the_same(running: Running, target: MemoryTarget, why: str) -> None:
    await running.settle()
    for name in target.rows:
        rows = running.server.rows(f"SELECT id FROM shop.{name}")
        assert set(plain(target.rows[name])) == set(rows), (name, why)


async def test_a_view_whose_function_writes_a_followed_table(sql_server: SqlServer) -> None:
    sql_server.execute(*MADE)
    more = OF_MARIADB if isinstance(sql_server, MariaDB) else OF_MYSQL
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        for line in (OF_A_VIEW + more).strip().splitlines():
            sql_server.execute("REPLACE INTO unwatched.w VALUES (0)")
            before = sql_server.rows("SELECT COUNT(*) FROM shop.b")
            log_statements(sql_server, line, "DELETE FROM unwatched.w")
            assert sql_server.rows("SELECT COUNT(*) FROM shop.b") != before, line
            await _is_the_same(running, target, line)
    sql_server.execute("DROP DATABASE unwatched")


OF_A_QUERY = """
CREATE TABLE c AS SELECT id FROM a
CREATE TABLE c (id INT PRIMARY KEY) SELECT id FROM a UNION SELECT 9
CREATE TABLE IF NOT EXISTS c (id INT PRIMARY KEY) AS SELECT id + 1 AS id FROM a
CREATE TABLE c (id INT PRIMARY KEY); CREATE TABLE IF NOT EXISTS c AS SELECT id FROM a
CREATE TEMPORARY TABLE t AS SELECT id FROM a; CREATE TABLE c (id INT PRIMARY KEY) SELECT id FROM t
CREATE TABLE c (id INT PRIMARY KEY); INSERT INTO c VALUES (5)
"""


async def test_a_table_that_is_made_of_a_query_has_its_rows(sql_server: SqlServer) -> None:
    sql_server.execute(*MADE)
    target = MemoryTarget()
    lines = OF_A_QUERY.strip().splitlines()
    if isinstance(sql_server, MariaDB):
        lines += [
            "CREATE TABLE c (id INT); CREATE OR REPLACE TABLE c (id INT PRIMARY KEY) SELECT 3 AS id"
        ]
    async with following(sql_server, target) as running:
        await running.settle()
        for line in lines:
            log_statements(sql_server, *line.split(";"))
            sql_server.execute("INSERT INTO shop.a SELECT MAX(id) + 1 FROM shop.a")
            if "PRIMARY KEY" in line:
                await _is_the_same(running, target, line)
            sql_server.execute("DROP TABLE shop.c")
            await running.settle()
            target.rows.get("c", {}).clear()
    sql_server.execute("DROP DATABASE unwatched")
