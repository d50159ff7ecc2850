"""Statements about a temporary table leave a followed table of the same name as it is."""

from __future__ import annotations

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.sql_server import SqlServer
from rowtide.connectors.sources.mysql.query import parse_query
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import following, log_statements, plain

HIDING = "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, x INT)"

STATEMENTS = """
TRUNCATE TABLE t
TRUNCATE t
ALTER TABLE t ADD y INT DEFAULT 5
ALTER TABLE t DROP COLUMN x
ALTER TABLE t RENAME TO free
ALTER TABLE t RENAME TO u
CREATE INDEX i ON t (x)
DROP TABLE t
DROP TABLE IF EXISTS t, absent
DROP TEMPORARY TABLE t
DROP TABLE t; CREATE TEMPORARY TABLE u (id INT PRIMARY KEY); ALTER TABLE u RENAME TO t; TRUNCATE t
INSERT INTO t VALUES (7, 7); UPDATE t SET x = 9; DELETE FROM t
REPLACE INTO t SELECT id, x FROM u
BEGIN; INSERT INTO u VALUES (50, 5); DELETE FROM t; TRUNCATE t; DELETE FROM u WHERE id = 50; COMMIT
OPTIMIZE TABLE t; ANALYZE TABLE t; REPAIR TABLE t
"""
OF_MARIADB = """\
RENAME TABLE t TO free
RENAME TABLE t TO free, free TO other
CREATE OR REPLACE TEMPORARY TABLE t (id INT PRIMARY KEY)
SET STATEMENT lock_wait_timeout=30 FOR TRUNCATE TABLE t
"""


@pytest.mark.parametrize(
    ("flags", "temporary"), [(0, False), (0x4, True), (0x8, False), (12, True)]
)
def test_an_event_of_a_temporary_table(flags: int, *, temporary: bool) -> None:
    body = b"\0" * 8 + b"\x04" + b"\0" * 4 + b"shop\0TRUNCATE t"
    assert parse_query(body, flags).temporary is temporary


@pytest.mark.system
@pytest.mark.parametrize("log", ["STATEMENT", "MIXED", "ROW"])
async def test_a_followed_table_that_a_temporary_one_hides(sql_server: SqlServer, log: str) -> None:
    sql_server.execute(
        *(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, x INT)" for name in ("t", "u")),
        *(f"INSERT INTO shop.{name} VALUES (1, 10), (2, 20)" for name in ("t", "u")),
    )
    lines = STATEMENTS + OF_MARIADB * isinstance(sql_server, MariaDB)
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        for number, line in enumerate(lines.strip().splitlines(), start=100):
            log_statements(sql_server, HIDING, *line.split(";"), log=log)
            await running.settle()
            sql_server.execute(f"INSERT INTO shop.t VALUES ({number}, 1)")
            await running.settle()
            for name in ("t", "u"):
                rows = sql_server.rows(f"SELECT id, x FROM shop.{name}")
                assert plain(target.rows[name]) == {(key,): {"x": x} for key, x in rows}, line
        assert set(target.rows) == {"t", "u"}
        assert running.lives == 1


@pytest.mark.system
async def test_a_temporary_table_that_is_older_than_the_reader(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.t (id INT PRIMARY KEY, x INT)", "INSERT INTO shop.t VALUES (1, 10)"
    )
    target = MemoryTarget()
    with sql_server.connect(database="shop") as session, session.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
        cursor.execute(HIDING)
        async with following(sql_server, target) as running:
            await running.settle()
            cursor.execute("TRUNCATE TABLE t")
            await running.settle()
            cursor.execute("ALTER TABLE t RENAME TO v")
            await running.settle()
            assert plain(target.rows["t"]) == {(1,): {"x": 10}}
            cursor.execute("TRUNCATE TABLE t")
            await running.settle()
            assert plain(target.rows["t"]) == {}, "it is the followed table by now"


OF_ITS_OWN_NAME = """
CREATE TEMPORARY TABLE s (id INT); INSERT INTO s VALUES (1); UPDATE s SET id = 2; DELETE FROM s
CREATE TEMPORARY TABLE s AS SELECT id FROM t; REPLACE INTO s SELECT x FROM u; DROP TABLE s
CREATE TEMPORARY TABLE s LIKE t; INSERT INTO s SELECT * FROM t; ALTER TABLE s ADD y INT DEFAULT 5
CREATE TEMPORARY TABLE s (id INT); INSERT INTO unwatched.w SELECT id FROM s
CREATE TEMPORARY TABLE v (id INT); TRUNCATE v
"""


@pytest.mark.system
async def test_a_temporary_table_of_its_own_name_copies_nothing(sql_server: SqlServer) -> None:
    sql_server.execute(
        "DROP DATABASE IF EXISTS unwatched",
        "CREATE DATABASE unwatched",
        "CREATE TABLE unwatched.w (id INT)",
        *(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, x INT)" for name in ("t", "u")),
        *(f"INSERT INTO shop.{name} VALUES (1, 10), (2, 20)" for name in ("t", "u")),
        "CREATE VIEW shop.v AS SELECT id FROM shop.u",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        for line in OF_ITS_OWN_NAME.strip().splitlines():
            log_statements(sql_server, *line.split(";"))
            await running.settle()
            assert target.made == [], line
        log_statements(sql_server, "INSERT INTO v VALUES (9)")
        await running.settle()
        assert (9,) in plain(target.rows["u"]), "it is a view"
    sql_server.execute("DROP DATABASE unwatched")


@pytest.mark.system
async def test_a_table_that_may_be_hidden_from_the_user_counts(mysql: SqlServer) -> None:
    mysql.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    target = MemoryTarget()
    mysql.execute("SET GLOBAL partial_revokes = ON")
    try:
        async with following(mysql, target) as running:
            await running.settle()
            target.made.clear()
            log_statements(mysql, "CREATE TEMPORARY TABLE s (id INT)", "INSERT INTO s VALUES (1)")
            await running.settle()
            assert [row.table for row in target.made] == ["t"]
    finally:
        mysql.execute("SET GLOBAL partial_revokes = OFF")
