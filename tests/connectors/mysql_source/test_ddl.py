"""What statements mean, and what becomes of rowtide's tables when MySQL's change."""

from __future__ import annotations

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.sql_server import SqlServer
from rowtide.connectors.sources.mysql.ddl import meanings
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import following, plain

SCENARIOS = """
CREATE TABLE a (x INT)                                   | created shop.a
create table if not exists `o``dd`.`b c` like d          | altered o`dd.b c
CREATE OR REPLACE TABLE a (x INT)                        | created shop.a, emptied shop.a
CREATE TABLE IF NOT EXISTS a (x INT PRIMARY KEY) AS SELECT 1 AS x | altered shop.a
/* why */ CREATE /*M! OR REPLACE */ TABLE a (x INT)      | created shop.a, emptied shop.a
CREATE TEMPORARY TABLE a (x INT)                         |
CREATE INDEX i ON a (x)                                  | altered shop.a
ALTER TABLE a ADD COLUMN y INT DEFAULT 5                 | reshaped shop.a
ALTER ONLINE TABLE other.a DROP COLUMN y                 | reshaped other.a
ALTER TABLE a RENAME COLUMN x TO y                       | reshaped shop.a
ALTER TABLE a ADD y INT, ALTER x DROP DEFAULT            | altered shop.a
ALTER TABLE a DROP INDEX i, DROP CONSTRAINT IF EXISTS c  | altered shop.a
ALTER TABLE a DROP COLUMN x, ADD COLUMN x INT            | reshaped shop.a
ALTER TABLE a DROP INDEX i, DROP `index`                 | reshaped shop.a
ALTER TABLE a MODIFY x INT AS (y * 2) STORED             | reshaped shop.a
ALTER TABLE a ADD y INT COMMENT 'do not MODIFY x'        | altered shop.a
ALTER TABLE a RENAME INDEX i TO j, ADD z INT             | altered shop.a
ALTER TABLE a COMMENT 'RENAME TO b'                      | altered shop.a
ALTER TABLE a COMMENT "please rename it later"           | altered shop.a
ALTER TABLE a ADD y CHAR(4) DEFAULT '#000', RENAME TO b  | replaced shop.a, replaced shop.b
ALTER TABLE a ADD y INT COMMENT 'a -- b', RENAME `b`     | replaced shop.a, replaced shop.b
/*Migration 5*/ ALTER TABLE a RENAME TO b                | replaced shop.a, replaced shop.b
ALTER TABLE a RENAME b                                   | replaced shop.a, replaced shop.b
ALTER TABLE a ADD z INT, RENAME TO other.b               | replaced shop.a, replaced other.b
ALTER TABLE a DROP PARTITION p                           | replaced shop.a
ALTER TABLE a IMPORT TABLESPACE                          | replaced shop.a
DROP TABLE IF EXISTS a, other.b /* generated */          | dropped shop.a, dropped other.b
DROP TEMPORARY TABLE a                                   |
DROP DATABASE other                                      | dropped other.
TRUNCATE TABLE a                                         | emptied shop.a
truncate `a`                                             | emptied shop.a
RENAME TABLE a TO b, c WAIT 5 TO other.d                 | replaced shop.a, replaced shop.b, replaced shop.c, replaced other.d
INSERT INTO a VALUES (1)                                 | written shop.a
ROLLBACK TO `before`                                     | unclear .
CREATE DATABASE other                                    |
GRANT ALL ON *.* TO x                                    |
ANALYZE TABLE a                                          |
"""  # noqa: E501 - one scenario, one line


@pytest.mark.parametrize("line", SCENARIOS.strip().splitlines())
def test_a_statement_means(line: str) -> None:
    statement, wanted = (part.strip() for part in line.split("|"))
    found = [
        f"{meaning.what.value} {meaning.database}.{meaning.table}"
        for meaning in meanings(statement, "shop")
    ]
    assert ", ".join(found) == wanted


@pytest.mark.system
async def test_tables_change_while_they_are_followed(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT, y VARCHAR(9))",
        "INSERT INTO shop.a VALUES (1, 10, 'one'), (2, 20, 'two')",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        rows = target.rows["a"]

        sql_server.execute("ALTER TABLE shop.a ADD COLUMN z INT")
        sql_server.execute("UPDATE shop.a SET z = 1 WHERE id = 1")
        await running.settle()
        assert plain(rows) == {(1,): {"x": 10, "y": "one", "z": 1}, (2,): {"x": 20, "y": "two"}}

        sql_server.execute("ALTER TABLE shop.a ADD COLUMN d INT NOT NULL DEFAULT 7 FIRST")
        sql_server.execute("ALTER TABLE shop.a DROP COLUMN z, RENAME COLUMN y TO name")
        await running.settle()
        assert plain(rows) == {
            (1,): {"x": 10, "name": "one", "d": 7},
            (2,): {"x": 20, "name": "two", "d": 7},
        }

        sql_server.execute("TRUNCATE shop.a", "INSERT INTO shop.a (id, x) VALUES (3, 30)")
        await running.settle()
        assert plain(rows) == {(3,): {"x": 30, "d": 7}}

        sql_server.execute("CREATE TABLE shop.b (id INT PRIMARY KEY, x INT)")
        sql_server.execute("INSERT INTO shop.b VALUES (1, 1)", "CREATE TABLE shop.c LIKE shop.b")
        await running.settle()
        assert plain(target.rows["b"]) == {(1,): {"x": 1}}

        sql_server.execute("INSERT INTO shop.c VALUES (5, 5)")
        sql_server.execute("RENAME TABLE shop.b TO shop.old, shop.c TO shop.b")
        await running.settle()
        assert plain(target.rows["b"]) == {(5,): {"x": 5}}
        assert plain(target.rows["old"]) == {(1,): {"x": 1}}

        sql_server.execute("DROP TABLE shop.b")
        await running.settle()
        assert plain(target.rows["b"]) == {(5,): {"x": 5}}, "a dropped table's rows stay"
        sql_server.execute("CREATE TABLE shop.b (id INT PRIMARY KEY)")
        await running.settle()
        assert plain(target.rows["b"]) == {}, "a new table begins empty"
        assert running.lives == 1


@pytest.mark.system
async def test_a_table_made_of_a_query_has_its_rows_where_an_earlier_one_left_some(
    sql_server: SqlServer,
) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "INSERT INTO shop.a VALUES (1), (2), (3), (4), (5), (6), (7), (8)",
        "CREATE TABLE shop.b LIKE shop.a",
        "INSERT INTO shop.b SELECT id + 100 FROM shop.a",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute("DROP TABLE shop.b")
        await running.settle()
        sql_server.execute("CREATE TABLE shop.b (id INT PRIMARY KEY) AS SELECT id FROM shop.a")
        await running.settle()
        assert plain(target.rows["b"]) == plain(target.rows["a"])
        if isinstance(sql_server, MariaDB):
            replaced = "CREATE OR REPLACE TABLE shop.b (id INT PRIMARY KEY)"
            sql_server.execute(f"{replaced} AS SELECT id FROM shop.a WHERE id < 5")
            await running.settle()
            assert sorted(plain(target.rows["b"])) == [(1,), (2,), (3,), (4,)]
        assert running.lives == 1


@pytest.mark.system
async def test_columns_whose_values_a_statement_changes_are_copied_again(
    sql_server: SqlServer,
) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT, y INT)",
        "INSERT INTO shop.a VALUES (1, 10, 1), (2, 20, NULL)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        rows = target.rows["a"]
        sql_server.execute("ALTER TABLE shop.a DROP COLUMN x, ADD COLUMN x INT")
        await running.settle()
        assert plain(rows) == {(1,): {"y": 1}, (2,): {}}

        sql_server.execute("ALTER TABLE shop.a ADD COLUMN twice INT AS (id * 2) STORED")
        await running.settle()
        assert plain(rows) == {(1,): {"y": 1, "twice": 2}, (2,): {"twice": 4}}

        sql_server.execute("ALTER TABLE shop.a MODIFY twice INT AS (id * 2 + 1) STORED")
        await running.settle()
        assert plain(rows) == {(1,): {"y": 1, "twice": 3}, (2,): {"twice": 5}}

        with sql_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode = ''")
            cursor.execute("ALTER TABLE shop.a MODIFY y INT NOT NULL")
        await running.settle()
        assert plain(rows) == {(1,): {"y": 1, "twice": 3}, (2,): {"y": 0, "twice": 5}}
        assert running.lives == 1


@pytest.mark.system
@pytest.mark.parametrize(
    ("former", "later", "value", "kept"),
    [
        ("DECIMAL(5,1)", "DECIMAL(5,2)", "1.0", "1.00"),
        ("DATETIME", "DATETIME(3)", "'2024-01-02 03:04:05'", "2024-01-02 03:04:05.000"),
        ("BINARY(2)", "BINARY(4)", "'ab'", b"ab\0\0"),
        ("INT", "VARCHAR(9)", "7", None),
    ],
)
async def test_keys_that_a_statement_changes_leave_no_former_ones(
    sql_server: SqlServer, former: str, later: str, value: str, kept: str | bytes | None
) -> None:
    """A key of another type in rowtide is refused for its table alone."""
    sql_server.execute(
        f"CREATE TABLE shop.a (k {former} PRIMARY KEY, x INT)",
        f"INSERT INTO shop.a VALUES ({value}, 1)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute(f"ALTER TABLE shop.a MODIFY k {later}")
        await running.settle()
        if kept is None:
            await running.wait_until_state("shop.a", "failed")
        else:
            assert plain(target.rows["a"]) == {(kept,): {"x": 1}}
        assert running.lives == 1


@pytest.mark.system
async def test_updates_are_merges_after_a_table_was_made_that_was_there(
    sql_server: SqlServer,
) -> None:
    made = "CREATE TABLE IF NOT EXISTS shop.a (id INT PRIMARY KEY, x INT, y INT)"
    sql_server.execute(made, "INSERT INTO shop.a VALUES (1, 10, 1)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute(made, "UPDATE shop.a SET x = 11")
        await running.settle()
        last = target.made[-1]
        assert (last.columns, last.whole) == ({"x": 11}, False)
        assert running.lives == 1


@pytest.mark.system
async def test_a_statement_in_place_of_rows_copies_all_again(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "INSERT INTO shop.a VALUES (1, 10), (2, 20), (3, 30)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        with sql_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_format = 'STATEMENT'")
            cursor.execute("DELETE FROM shop.a WHERE id = 2")
            cursor.execute("UPDATE shop.a SET x = 31 WHERE id = 3")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {"x": 10}, (3,): {"x": 31}}


@pytest.mark.system
async def test_images_that_are_not_whole_copy_all_again(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT, y INT)",
        "INSERT INTO shop.a VALUES (1, 10, 1), (2, 20, 2)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        with sql_server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION binlog_row_image = 'MINIMAL'")
            cursor.execute("UPDATE shop.a SET x = 11 WHERE id = 1")
            cursor.execute("DELETE FROM shop.a WHERE id = 2")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {"x": 11, "y": 1}}


@pytest.mark.system
async def test_a_transaction_of_xa_is_there_once_it_is_committed(sql_server: SqlServer) -> None:
    sql_server.execute("CREATE TABLE shop.a (id INT PRIMARY KEY)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute(
            *("XA START 'x'", "INSERT INTO shop.a VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"),
        )
        await running.settle()
        assert plain(target.rows["a"]) == {}
        sql_server.execute("XA COMMIT 'x'")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {}}
