"""Statements that are logged instead of rows, and write more than the table that they name."""

from __future__ import annotations

import json

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
    "INSERT INTO shop.b VALUES (1)",
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


BY_TRIGGER = (
    "CREATE TRIGGER {0}.t AFTER INSERT ON {0}.{1} FOR EACH ROW INSERT INTO shop.b () VALUES ()"
)
HOOKS = {
    "a trigger elsewhere": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "DROP TRIGGER unwatched.t",
    ),
    "a trigger of a followed table": (
        BY_TRIGGER.format("shop", "a"),
        "INSERT INTO a VALUES (5)",
        "DROP TRIGGER IF EXISTS shop.t",
    ),
    "a table that is made anew": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "DROP TABLE unwatched.w; CREATE TABLE unwatched.w (id INT PRIMARY KEY)",
    ),
    "another table of the name": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "RENAME TABLE unwatched.w TO unwatched.o; CREATE TABLE unwatched.w (id INT PRIMARY KEY)",
    ),
    "another database of the name": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "DROP DATABASE unwatched; CREATE DATABASE unwatched;"
        " CREATE TABLE unwatched.w (id INT PRIMARY KEY)",
    ),
    "a table where a view was": (
        "CREATE VIEW unwatched.x AS SELECT id FROM shop.b",
        "INSERT INTO unwatched.x VALUES (77)",
        "DROP VIEW unwatched.x; CREATE TABLE unwatched.x (id INT PRIMARY KEY)",
    ),
    "a table that is gone": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "DROP TABLE unwatched.w",
    ),
    "a table of another name": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "ALTER TABLE unwatched.w RENAME TO unwatched.o; DROP TRIGGER unwatched.t",
    ),
    "a database that is gone": (
        BY_TRIGGER.format("unwatched", "w"),
        "INSERT INTO unwatched.w VALUES (5)",
        "DROP DATABASE unwatched; CREATE DATABASE unwatched",
    ),
    "a view that is gone": (
        "CREATE VIEW unwatched.x AS SELECT id FROM shop.b",
        "INSERT INTO unwatched.x VALUES (77)",
        "DROP VIEW unwatched.x",
    ),
    "a view of another name": (
        "CREATE VIEW unwatched.x AS SELECT id FROM shop.b",
        "INSERT INTO unwatched.x VALUES (77)",
        "RENAME TABLE unwatched.x TO unwatched.y",
    ),
    "a view that is read and gone": (
        "DO 0",
        "INSERT INTO unwatched.w SELECT n FROM shop.v",
        "DROP VIEW shop.v",
    ),
    "a table of another engine": (
        "ALTER TABLE shop.b ENGINE=MyISAM;"
        "CREATE TABLE unwatched.x (id INT AUTO_INCREMENT PRIMARY KEY)"
        " ENGINE=MRG_MyISAM UNION=(shop.b) INSERT_METHOD=LAST",
        "INSERT INTO unwatched.x VALUES (77)",
        "ALTER TABLE unwatched.x ENGINE=InnoDB",
    ),
    "a table that is read where a view was": (
        "DO 0",
        "INSERT INTO unwatched.w SELECT n FROM shop.v",
        "DROP VIEW shop.v; CREATE TABLE shop.v (id INT PRIMARY KEY)",
    ),
    "a function": (
        "DO 0",
        "INSERT INTO unwatched.w VALUES (shop.f())",
        "DROP VIEW shop.v; DROP FUNCTION shop.f",
    ),
    "a view that was redefined": (
        "DROP VIEW shop.v; CREATE VIEW shop.v AS SELECT id AS n FROM shop.b",
        "INSERT INTO v VALUES (77)",
        "DROP VIEW shop.v; CREATE TABLE shop.v (id INT PRIMARY KEY)",
    ),
}


@pytest.mark.parametrize("case", HOOKS)
async def test_what_made_a_statement_write_another_table_is_gone_by_now(
    sql_server: SqlServer, case: str
) -> None:
    made, write, gone = HOOKS[case]
    sql_server.execute(*MADE)
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    sql_server.execute(*made.split(";"))
    log_statements(sql_server, write)
    assert sql_server.rows("SELECT COUNT(*) FROM shop.b") == [(2,)]
    sql_server.execute(*gone.split(";"))
    async with following(sql_server, target) as running:
        await _is_the_same(running, target, case)
        assert len(plain(target.rows["b"])) == 2
    sql_server.execute("DROP DATABASE unwatched")


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_what_was_looked_up_before_a_restart(
    sql_server: SqlServer, *, elsewhere: bool
) -> None:
    """One reader trusts a statement, the next one reads what the first could not know."""
    sql_server.execute(*MADE, BY_TRIGGER.format("unwatched", "w"))
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    log_statements(sql_server, "INSERT INTO unwatched.w VALUES (5)")
    sql_server.execute("SET sql_log_bin = 0", "DROP TRIGGER unwatched.t")
    async with following(sql_server, target) as running:
        await running.settle()
    assert plain(target.rows["b"]) == {(1,): {}}
    kept = json.loads(target.kept)
    assert list(kept["looks"]) == ["unwatched.w"]
    if elsewhere:
        # As if it had been another server's: its places say nothing of this one's.
        kept["looks"]["unwatched.w"] = [0, 4]
        kept["log"] = kept["server"] = "another"
    else:
        # As if the look had come later than what follows.
        kept["looks"]["unwatched.w"][0] += 1
    target.kept = json.dumps(kept).encode()
    sql_server.execute("DROP TRIGGER IF EXISTS unwatched.t")
    async with following(sql_server, target) as running:
        await _is_the_same(running, target, "the trigger is gone")
        await running.until(lambda: "unwatched.w" not in str(target.kept), "it is forgotten")
    sql_server.execute("DROP DATABASE unwatched")


async def test_triggers_that_come_and_go_copy_nothing_where_rows_are_logged(
    sql_server: SqlServer,
) -> None:
    sql_server.execute(*MADE)
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        log_statements(sql_server, "INSERT INTO unwatched.w VALUES (1)")
        await running.settle()
        target.made.clear()
    sql_server.execute(
        BY_TRIGGER.format("shop", "a"), "INSERT INTO shop.a VALUES (9)", "DROP TRIGGER shop.t"
    )
    log_statements(
        sql_server, "INSERT INTO unwatched.w VALUES (2)", "ALTER TABLE unwatched.w ADD x INT"
    )
    async with following(sql_server, target) as running:
        await _is_the_same(running, target, "rows")
        sql_server.execute("DROP VIEW shop.v")
        await running.settle()
    assert sorted(row.table for row in target.made) == ["a", "b"]
    sql_server.execute("DROP DATABASE unwatched")
