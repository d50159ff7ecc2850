"""Statements in forms that are rare: what they mean, and that no row is lost or read in vain."""

from __future__ import annotations

from typing import Any

import pytest

from demo.servers.mariadb import MariaDB
from demo.servers.sql_server import SqlServer
from rowtide.connectors.sources.mysql.ddl import meanings
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, log_statements, plain

ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 10, 1 << 20

SCENARIOS = """
SET STATEMENT lock_wait_timeout=30 FOR TRUNCATE TABLE a                | emptied shop.a
set statement a=1, b='x FOR y' for alter table a drop column x         | reshaped shop.a
SET STATEMENT a=(SELECT 1 FROM b FOR UPDATE) FOR DROP TABLE a          | dropped shop.a
SET STATEMENT a=1 FOR SET STATEMENT b=2 FOR RENAME TABLE a TO b        | replaced shop.a, replaced shop.b
SET STATEMENT sql_mode='' FOR ALTER TABLE a COMMENT 'x'                | unclear .
SET STATEMENT a=1 FOR CREATE TABLE a (x INT)                           | created shop.a
TRUNCATE TABLE`a`                                                      | emptied shop.a
TRUNCATE`a`                                                            | emptied shop.a
TRUNCATE /* x */ TABLE/* y */a                                         | emptied shop.a
/*!50000 TRUNCATE TABLE a */                                           | emptied shop.a
/*M!100100 TRUNCATE*/ TABLE a                                          | emptied shop.a
TRUNCATE table                                                         | emptied shop.table
RENAME TABLE`a`TO`b`                                                   | replaced shop.a, replaced shop.b
RENAME TABLE`a`TO`other`.`b`,`c`TO`d`                                  | replaced shop.a, replaced other.b, replaced shop.c, replaced shop.d
RENAME TABLES IF EXISTS a NOWAIT TO b                                  | replaced shop.a, replaced shop.b
RENAME USER a TO b                                                     |
ALTER TABLE a RENAME=k                                                 | replaced shop.a, replaced shop.k
ALTER TABLE a RENAME AS`k`                                             | replaced shop.a, replaced shop.k
ALTER TABLE a WAIT 3 RENAME k                                          | replaced shop.a, replaced shop.k
ALTER TABLE other.a RENAME TO b                                        | replaced other.a, replaced shop.b
ALTER TABLE other.a EXCHANGE PARTITION p WITH TABLE x                  | replaced shop.x, replaced other.a
ALTER TABLE other.a CONVERT TABLE x TO PARTITION p VALUES LESS THAN (3) | replaced shop.x, replaced other.a
ALTER TABLE a RENAME KEY i TO j                                        | altered shop.a
ALTER TABLE a RENAME                                                   | unclear .
ALTER TABLE shop . a DROP x                                            | reshaped shop.a
ALTER TABLE a ADD x INT                                                | altered shop.a
ALTER TABLE a ADD (x INT, y INT)                                       | altered shop.a
ALTER TABLE a ADD (x INT, y INT DEFAULT 2)                             | reshaped shop.a
ALTER TABLE a ADD x VARCHAR(9) NULL DEFAULT 'new'                      | reshaped shop.a
ALTER TABLE a ADD x INT NOT NULL                                       | reshaped shop.a
ALTER TABLE a ADD x TIMESTAMP                                          | reshaped shop.a
ALTER TABLE a ADD x SERIAL                                             | reshaped shop.a
ALTER TABLE a ADD x INT GENERATED ALWAYS AS (1)                        | reshaped shop.a
ALTER TABLE a ADD x INT COMMENT 'NOT NULL DEFAULT 1'                   | altered shop.a
ALTER TABLE a ADD `default` INT                                        | altered shop.a
ALTER TABLE a ADD vector INT DEFAULT 4                                 | reshaped shop.a
ALTER TABLE a ADD VECTOR INDEX (v)                                     | altered shop.a
ALTER TABLE a ADD UNIQUE KEY k (x), ALGORITHM=INPLACE, LOCK=NONE       | altered shop.a
ALTER TABLE a ENGINE=InnoDB, ROW_FORMAT=DYNAMIC                        | altered shop.a
ALTER TABLE a ENGINE=BLACKHOLE                                         | replaced shop.a
ALTER TABLE a ADD x INT, ENGINE 'blackhole'                            | replaced shop.a
ALTER TABLE a COMMENT 'x' ENGINE = `Something`                         | replaced shop.a
ALTER TABLE a ENGINE=BLACKHOLE COMMENT 'ENGINE=InnoDB'                 | replaced shop.a
ALTER TABLE a COMMENT 'x' ENGINE "MEMORY", FORCE                       | altered shop.a
ALTER TABLE a COMMENT 'ENGINE=BLACKHOLE'                               | altered shop.a
ALTER TABLE a REORGANIZE PARTITION p, q INTO (PARTITION r VALUES LESS THAN (9) ENGINE = InnoDB) | altered shop.a
ALTER TABLE a REORGANIZE PARTITION                                     | altered shop.a
ALTER TABLE a COALESCE PARTITION 2                                     | altered shop.a
ALTER TABLE a ADD PARTITION (PARTITION p VALUES IN (1, 2), PARTITION q VALUES IN (3)) | altered shop.a
ALTER TABLE a REBUILD PARTITION p, q                                   | altered shop.a
ALTER TABLE a ALGORITHM=INPLACE, REORGANIZE PARTITION p, q INTO (PARTITION r VALUES IN (1)) | altered shop.a
ALTER TABLE a DROP PARTITION p, q                                      | replaced shop.a
ALTER TABLE a TRUNCATE PARTITION p, q                                  | replaced shop.a
ALTER TABLE a IMPORT PARTITION p, q TABLESPACE                         | replaced shop.a
ALTER TABLE a REPAIR PARTITION p, q                                    | replaced shop.a
ALTER TABLE a ORDER BY x, y DESC, a.z, shop.a.`v`                      | altered shop.a
ALTER TABLE a ORDER BY x, DROP y                                       | reshaped shop.a
ALTER TABLE a ORDER BY x DESC, RENAME b                                | replaced shop.a, replaced shop.b
ALTER TABLE a ORDER BY x, RENAME `b`                                   | replaced shop.a, replaced shop.b
ALTER TABLE a ORDER BY x, y, ENGINE=BLACKHOLE                          | replaced shop.a
ALTER TABLE a ORDER BY x, FORCE, MODIFY y INT                          | reshaped shop.a
ALTER TABLE a ADD x INT DEFAULT NULL                                   | altered shop.a
ALTER TABLE a ADD x INT NULL DEFAULT NULL AFTER y, ADD z INT DEFAULT 1 | reshaped shop.a
ALTER TABLE a ADD COLUMN IF NOT EXISTS x INT                           | altered shop.a
ALTER TABLE a ADD IF NOT EXISTS x INT DEFAULT NULL                     | altered shop.a
ALTER TABLE a ADD COLUMN IF NOT EXISTS x INT NOT NULL                  | reshaped shop.a
ALTER TABLE a ADD x INT CHECK (x IS NOT NULL AND (x > DEFAULT(x)))     | altered shop.a
ALTER TABLE a ADD x INT CHECK (x IS NOT NULL) DEFAULT 4                | reshaped shop.a
ALTER TABLE a ADD x INT CONSTRAINT c CHECK (x IS NOT NULL), ADD y INT  | altered shop.a
ALTER TABLE a ADD COLUMN (x INT DEFAULT NULL, y INT CHECK (y IS NOT NULL)) | altered shop.a
ALTER TABLE a ADD COLUMN (x INT DEFAULT NULL, y INT NOT NULL)          | reshaped shop.a
ALTER TABLE a ADD timestamp DATETIME                                   | altered shop.a
ALTER TABLE a ADD PERIOD FOR SYSTEM_TIME (x, y)                        | reshaped shop.a
ALTER TABLE a ADD SYSTEM VERSIONING                                    | reshaped shop.a
ALTER TABLE a CONVERT TO CHARACTER SET utf8mb4                         | reshaped shop.a
ALTER TABLE a SOMETHING NEW                                            | reshaped shop.a
ALTER IGNORE TABLE a ADD UNIQUE (x)                                    | replaced shop.a
ALTER TABLE a EXCHANGE PARTITION p WITH TABLE x                        | replaced shop.x, replaced shop.a
ALTER TABLE a EXCHANGE PARTITION p WITH TABLE other.`x` WITHOUT VALIDATION | replaced other.x, replaced shop.a
ALTER TABLE a CONVERT PARTITION p TO TABLE x                           | replaced shop.x, replaced shop.a
ALTER TABLE a CONVERT TABLE x TO PARTITION p VALUES LESS THAN (3)      | replaced shop.x, replaced shop.a
ALTER TABLE a TRUNCATE PARTITION ALL                                   | replaced shop.a
ALTER TABLE a DISCARD PARTITION p TABLESPACE                           | replaced shop.a
ALTER TABLE a REMOVE PARTITIONING                                      | altered shop.a
ALTER DATABASE `#mysql50#a-b` UPGRADE DATA DIRECTORY NAME              | unclear .
ALTER USER x IDENTIFIED BY 'y'                                         |
ALTER SOMETHING a                                                      | unclear .
CREATE OR REPLACE DATABASE other                                       | dropped other.
CREATE DEFINER=`x`@`%` TRIGGER t AFTER INSERT ON a FOR EACH ROW DELETE FROM b |
CREATE UNIQUE INDEX i ON a (x)                                         | altered shop.a
DROP INDEX i ON other.a                                                | altered other.a
DROP TABLE`a`,`b`                                                      | dropped shop.a, dropped shop.b
DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `a`                         |
DROP VIEW a                                                            | unhooked .
DROP TRIGGER IF EXISTS a                                               | unhooked .
DROP FUNCTION a                                                        |
CREATE VIEW a AS SELECT f() FROM b                                     |
CREATE OR REPLACE VIEW a AS SELECT f() FROM b                          |
CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`x`@`%` SQL SECURITY INVOKER VIEW a AS SELECT 1 |
CREATE OR REPLACE DEFINER=`x`@`%` TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET @a = 1 |
ALTER ALGORITHM=UNDEFINED VIEW a AS SELECT 1                           |
ALTER EVENT a DISABLE                                                  |
REPAIR TABLE a                                                         | replaced shop.a
ANALYZE LOCAL TABLE a                                                  |
ANALYZE UPDATE a SET x = 1                                             | unclear .
INSERT INTO mysql.rds_heartbeat2(id, value) VALUES (1, 2) ON DUPLICATE KEY UPDATE value = 3 | written mysql.rds_heartbeat2
REPLACE INTO `percona`.`checksums` (db, cnt) SELECT 'shop', COUNT(*), COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#', x)) AS UNSIGNED)), 10, 16)), 0) FROM a /*checksum*/ | written percona.checksums, read shop.a
REPLACE INTO percona.checksums SELECT 'shop', COUNT(*) AS cnt FROM `other`.`b` FORCE INDEX(`PRIMARY`) WHERE ((`id` >= '1') AND (x, y) <> (1, 2)) ORDER BY x, y | written percona.checksums, read other.b
INSERT INTO a SELECT 1 FROM DUAL                                       | written shop.a
INSERT INTO a (x, y) SELECT x, y FROM b AS c, v WHERE x IN (1, 2)      | written shop.a, read shop.b, read shop.v
INSERT INTO a SELECT x FROM b JOIN c ON b.x = c.x AND b.y IN (1, 2), other.v | written shop.a, read shop.b, read shop.c, read other.v
INSERT INTO a SELECT x FROM b LEFT JOIN (c, v) USING (x, y)            | written shop.a, read shop.b, read shop.c, read shop.v
INSERT INTO a SELECT x FROM (SELECT x, y FROM b) AS d, v               | written shop.a, read shop.b, read shop.v
INSERT INTO a SELECT x FROM b USE INDEX FOR ORDER BY (i, j), v         | written shop.a, read shop.b, read shop.v
INSERT INTO a SELECT x FROM b AS duplicate, v ON DUPLICATE KEY UPDATE x = 1, y = (SELECT 1 FROM w) | written shop.a, read shop.b, read shop.v, read shop.w
INSERT INTO a (SELECT x FROM b, v)                                     | written shop.a, read shop.b, read shop.v
INSERT INTO a TABLE v                                                  | written shop.a, read shop.v
INSERT INTO a SELECT EXTRACT(YEAR FROM x), TRIM(BOTH 'x' FROM (SELECT y FROM v)) FROM b | written shop.a, read shop.v, read shop.b
INSERT INTO a VALUES (1, 2), (3, (SELECT MAX(x) FROM v))               | written shop.a, read shop.v
INSERT INTO a WITH c AS (SELECT x FROM b) SELECT x FROM c              | written shop.a, read shop.b, read shop.c
INSERT INTO a SELECT x FROM b, LATERAL (SELECT y FROM v) AS d          | unclear .
INSERT INTO a SELECT x FROM {OJ b LEFT JOIN v ON b.x = v.x}            | unclear .
INSERT INTO a SELECT x FROM JSON_TABLE('[]', '$' COLUMNS (x FOR ORDINALITY)) AS t | unclear .
INSERT INTO a SELECT x FROM (VALUES (1), (2)) AS d UNION SELECT x FROM v | written shop.a, read shop.v
INSERT INTO a VALUES (fields(1))                                       | unclear .
UPDATE a SET x = (SELECT MAX(y) FROM v), z = 2 WHERE y IN (SELECT y FROM w) | written shop.a, read shop.v, read shop.w
DELETE FROM a WHERE x IN (SELECT y FROM other.`v`)                     | written shop.a, read other.v
LOAD DATA INFILE 'x' INTO TABLE a (x, @y) SET y = (SELECT MAX(y) FROM v) | written shop.a, read shop.v
CREATE TABLE a (x INT PRIMARY KEY, CHECK (x > 1)) AS SELECT y FROM v   | read shop.v, replaced shop.a
CREATE TABLE a SELECT f(1)                                             | unclear .
CREATE TABLE a TABLE v                                                 | read shop.v, replaced shop.a
CREATE TABLE a AS WITH c AS (SELECT 1 FROM v) SELECT * FROM b          | read shop.v, read shop.b, replaced shop.a
CREATE TABLE a AS VALUES (1), (2)                                      | replaced shop.a
CREATE TABLE a (x INT) PARTITION BY LIST (x) (PARTITION p VALUES IN (1), PARTITION q VALUES IN (2)) | created shop.a
CREATE TABLE a (x INT) PARTITION BY RANGE (x) (PARTITION p VALUES LESS THAN (9)) AS SELECT 1 AS x | replaced shop.a
CREATE OR REPLACE TABLE a AS SELECT 1 AS x                             | replaced shop.a
CREATE TEMPORARY TABLE a AS SELECT x FROM v                            | read shop.v
CREATE TEMPORARY TABLE a AS SELECT f(1)                                | unclear .
UPDATE percona.checksums SET x = 1 WHERE db = 'a'                      | written percona.checksums
UPDATE a AS b SET x = 1                                                | written shop.a
UPDATE a, b SET a.x = 1                                                | unclear .
UPDATE a JOIN b ON a.x = b.x SET b.y = 1                               | unclear .
DELETE FROM a WHERE x = 1                                              | written shop.a
DELETE a FROM a JOIN b                                                 | unclear .
DELETE FROM a USING a JOIN b                                           | unclear .
WITH c AS (SELECT 1) DELETE FROM a                                     | unclear .
SELECT f()                                                             | unclear .
DO f()                                                                 | unclear .
CALL p()                                                               | unclear .
VALUES (f())                                                           | unclear .
INSERT INTO a VALUES (f(1))                                            | unclear .
INSERT INTO a VALUES (`f`(1))                                          | unclear .
INSERT INTO a VALUES (shop.now(1))                                     | unclear .
LOAD DATA LOCAL INFILE 'x' REPLACE INTO TABLE a FIELDS TERMINATED BY 'y' (x) | written shop.a
SOMETHING NEW                                                          | unclear .
GRANT INSERT ON a TO b                                                 |
FLUSH TABLES                                                           |
SET PASSWORD FOR x = 'y'                                               |
"""  # noqa: E501 - one scenario, one line

MODES = [
    (r"ALTER TABLE a COMMENT='C:\', DROP COLUMN b", NO_BACKSLASH_ESCAPES, "reshaped shop.a"),
    (r"ALTER TABLE a COMMENT='C:\\', DROP COLUMN b", 0, "reshaped shop.a"),
    (r"ALTER TABLE a COMMENT='it\'s, DROP COLUMN b'", 0, "altered shop.a"),
    ('TRUNCATE TABLE"a"', ANSI_QUOTES, "emptied shop.a"),
    ('RENAME TABLE"a ""b"TO"c"', ANSI_QUOTES, 'replaced shop.a "b, replaced shop.c'),
    ('ALTER TABLE a COMMENT "x, DROP b"', 0, "altered shop.a"),
    ("TRUNCATE TABLE [a]", MSSQL, "emptied shop.a"),
]


def _describe_meanings(statement: str, mode: int = 0) -> str:
    return ", ".join(
        f"{meaning.what.value} {meaning.database}.{meaning.table}"
        for meaning in meanings(statement, "shop", mode)
    )


@pytest.mark.parametrize("line", SCENARIOS.strip().splitlines())
def test_a_statement_means(line: str) -> None:
    statement, wanted = (part.strip() for part in line.split("|"))
    assert _describe_meanings(statement) == wanted


@pytest.mark.parametrize(("statement", "mode", "wanted"), MODES)
def test_a_statement_of_a_session_with_a_mode_means(statement: str, mode: int, wanted: str) -> None:
    assert _describe_meanings(statement, mode) == wanted


TEMPORARY = "CREATE TEMPORARY TABLE x{} (a INT)"
"""Since a rollback does not undo it, the server logs what is rolled back after it."""


@pytest.mark.system
@pytest.mark.parametrize(
    ("statements", "left"),
    [
        (["SAVEPOINT s", "+2", "ROLLBACK TO s", "+3"], {1, 3}),
        (["SAVEPOINT `S s`", "+2", "ROLLBACK WORK TO SAVEPOINT `s S`", "+3"], {1, 3}),
        (["SAVEPOINT s", "+2", "SAVEPOINT s", "+3", "ROLLBACK TO s", "+4"], {1, 2, 4}),
        (["SAVEPOINT s", "+2", "SAVEPOINT t", "+3", "ROLLBACK TO s", "+4"], {1, 4}),
        (["SAVEPOINT s", "+2", "RELEASE SAVEPOINT s", "+3"], {1, 2, 3}),
        (["SAVEPOINT s", "+2", "ROLLBACK TO s", "+3", "ROLLBACK TO s", "+4"], {1, 4}),
        (["SAVEPOINT s", "aria", "+2", "ROLLBACK TO s", "+3"], {1, 3}),
        (["COMMIT AND CHAIN", "+2", "ROLLBACK AND CHAIN", "+3"], {1, 3}),
        (["ROLLBACK"], set()),
    ],
)
@pytest.mark.parametrize("temporary", [False, True])
async def test_rows_up_to_a_savepoint_stay(
    sql_server: SqlServer, statements: list[str], left: set[int], temporary: bool
) -> None:
    if "aria" in statements and not isinstance(sql_server, MariaDB):
        pytest.skip("GTIDs of MySQL allow no tables without transactions here")
    plain_engine = "Aria TRANSACTIONAL=0" if isinstance(sql_server, MariaDB) else "MyISAM"
    sql_server.execute(
        "CREATE TABLE shop.i (id INT PRIMARY KEY)",
        f"CREATE TABLE shop.m (id INT PRIMARY KEY) ENGINE={plain_engine}",
        "INSERT INTO shop.i VALUES (0)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        with sql_server.connect(database="shop") as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO i VALUES (1)")
            if temporary and isinstance(sql_server, MariaDB):
                cursor.execute(TEMPORARY.format(0))
            for statement in statements:
                if statement == "aria":
                    cursor.execute("INSERT INTO m VALUES (7)")
                elif statement[0] == "+":
                    cursor.execute(f"INSERT INTO i VALUES ({statement[1:]})")
                else:
                    cursor.execute(statement)
            cursor.execute("COMMIT")
        await running.settle()
        await running.settle()
        assert plain(target.rows["i"]) == {(n,): {} for n in {0, *left}}
        assert set(plain(target.rows["m"])) == set(sql_server.rows("SELECT id FROM shop.m"))
        assert running.lives == 1


async def _run_apart(server: SqlServer, *statements: str, **settings: Any) -> None:
    with server.connect(**settings) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.system
async def test_statements_in_rare_forms_have_their_effect(sql_server: SqlServer) -> None:
    made = "CREATE TABLE shop.{} (id INT PRIMARY KEY, b VARCHAR(9)) COMMENT 'x'"
    names = ("t", "d", "e", "q", "gone")
    sql_server.execute(
        *(made.format(name) for name in names),
        *(f"INSERT INTO shop.{name} VALUES (1, 'old')" for name in names),
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        await _run_apart(
            sql_server,
            "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
            "ALTER TABLE shop.t COMMENT='C:\\', DROP COLUMN b,"
            " ADD COLUMN b VARCHAR(9) NULL DEFAULT 'x'",
            'TRUNCATE TABLE"shop"."q"',
        )
        sql_server.execute(
            "ALTER TABLE shop.d RENAME=shop.k",
            "RENAME TABLE`shop`.`e`TO`shop`.`f`",
            "TRUNCATE TABLE`shop`.`gone`",
        )
        if isinstance(sql_server, MariaDB):
            sql_server.execute(
                "SET STATEMENT lock_wait_timeout=30 FOR CREATE TABLE shop.n (id INT PRIMARY KEY)",
                "INSERT INTO shop.n VALUES (5)",
                "SET STATEMENT lock_wait_timeout=30 FOR ALTER TABLE shop.n ADD c INT DEFAULT 6",
                "SET STATEMENT lock_wait_timeout=30 FOR RENAME TABLE shop.n TO shop.o",
            )
        await running.settle()
        assert plain(target.rows["t"]) == {(1,): {"b": "x"}}
        assert plain(target.rows["k"]) == plain(target.rows["f"]) == {(1,): {"b": "old"}}
        assert plain(target.rows["q"]) == plain(target.rows["gone"]) == {}
        if isinstance(sql_server, MariaDB):
            assert plain(target.rows["o"]) == {(5,): {"c": 6}}
        assert running.lives == 1


@pytest.mark.system
async def test_names_in_another_case_where_the_server_does_not_tell_them_apart(
    make_mariadb: MakeServer,
) -> None:
    server = make_mariadb("--lower-case-table-names=1")
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    server.execute("INSERT INTO shop.a VALUES (1, 10)")
    target = MemoryTarget()
    async with following(server, target) as running:
        await running.settle()
        server.execute("ALTER TABLE SHOP.A ADD COLUMN y INT", "UPDATE shop.a SET y = 5")
        server.execute("CREATE TABLE Shop.B (id INT PRIMARY KEY)", "INSERT INTO shop.B VALUES (1)")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {"x": 10, "y": 5}}
        assert plain(target.rows["b"]) == {(1,): {}}
        server.execute("TRUNCATE TABLE Shop.A")
        await running.settle()
        assert plain(target.rows["a"]) == {}


@pytest.mark.system
@pytest.mark.parametrize(
    ("added", "later", "value"),
    [
        ("c VARCHAR(9) NULL DEFAULT 'new'", "ALTER c DROP DEFAULT", "new"),
        ("COLUMN (b INT, c INT DEFAULT 7)", "ALTER COLUMN c SET DEFAULT NULL", 7),
    ],
)
async def test_a_default_that_is_gone_when_the_statement_is_read(
    sql_server: SqlServer, added: str, later: str, value: object
) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)", "INSERT INTO shop.a VALUES (1), (2)"
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    sql_server.execute(f"ALTER TABLE shop.a ADD {added}", f"ALTER TABLE shop.a {later}")
    async with following(sql_server, target) as running:
        await running.settle()
        assert plain(target.rows["a"]) == {(n,): {"c": value} for n in (1, 2)}


@pytest.mark.system
async def test_a_table_that_a_partition_was_exchanged_with(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.p (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
        "CREATE TABLE shop.x (id INT PRIMARY KEY)",
        "INSERT INTO shop.p VALUES (1), (11)",
        "INSERT INTO shop.x VALUES (2)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute("ALTER TABLE shop.p EXCHANGE PARTITION p0 WITH TABLE shop.x")
        await running.settle()
        assert set(plain(target.rows["p"])) == {(2,), (11,)}
        assert set(plain(target.rows["x"])) == {(1,)}


@pytest.mark.system
async def test_a_name_without_a_database_is_one_of_the_session(sql_server: SqlServer) -> None:
    sql_server.execute(
        "DROP DATABASE IF EXISTS other",
        "CREATE DATABASE other",
        "CREATE TABLE other.t (id INT PRIMARY KEY)",
        "INSERT INTO other.t VALUES (1)",
        "CREATE TABLE other.p (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p0 VALUES LESS THAN (10))",
        "INSERT INTO other.p VALUES (2)",
        "CREATE TABLE shop.x (id INT PRIMARY KEY)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        await _run_apart(
            sql_server,
            "ALTER TABLE other.t RENAME TO t2",
            "INSERT INTO t2 VALUES (3)",
            "ALTER TABLE other.p EXCHANGE PARTITION p0 WITH TABLE x",
            database="shop",
        )
        await running.settle()
        assert set(plain(target.rows["t2"])) == {(1,), (3,)}
        assert set(plain(target.rows["x"])) == {(2,)}
        assert running.lives == 1
    sql_server.execute("DROP DATABASE other")


@pytest.mark.system
async def test_an_engine_that_keeps_no_rows(mysql: SqlServer) -> None:
    mysql.execute("CREATE TABLE shop.a (id INT PRIMARY KEY)", "INSERT INTO shop.a VALUES (1)")
    target = MemoryTarget()
    async with following(mysql, target) as running:
        await running.settle()
        mysql.execute("ALTER TABLE shop.a COMMENT 'x' ENGINE=BLACKHOLE")
        await running.settle()
        assert plain(target.rows["a"]) == {}
        assert running.lives == 1


@pytest.mark.system
async def test_partitions_that_keep_their_rows_copy_nothing(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY) PARTITION BY RANGE (id)"
        " (PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN (20))",
        "INSERT INTO shop.a VALUES (1), (11)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        sql_server.execute(
            "ALTER TABLE shop.a REORGANIZE PARTITION p, q INTO (PARTITION r VALUES LESS THAN (30))",
            "ALTER TABLE shop.a ADD x INT DEFAULT NULL",
            "INSERT INTO shop.a (id) VALUES (21)",
        )
        await running.settle()
        assert [row.key for row in target.made] == [(("id", 21),)]


@pytest.mark.system
async def test_statements_that_write_other_databases_copy_nothing(sql_server: SqlServer) -> None:
    sql_server.execute(
        "DROP DATABASE IF EXISTS percona",
        "CREATE DATABASE percona",
        "CREATE TABLE percona.checksums (db VARCHAR(9) PRIMARY KEY, cnt INT)",
        "CREATE TABLE percona.heartbeat (id INT PRIMARY KEY, ts INT)",
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "INSERT INTO shop.a VALUES (1, 10)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        log_statements(
            sql_server,
            "INSERT INTO percona.heartbeat VALUES (1, 2) ON DUPLICATE KEY UPDATE ts = 3",
            "REPLACE INTO percona.checksums SELECT 'shop', COUNT(*) FROM shop.a",
            "UPDATE percona.checksums SET cnt = 5 WHERE db = 'shop'",
            "DELETE FROM percona.checksums",
        )
        await _run_apart(sql_server, "CREATE TABLE percona.caf\u00e9 (id INT)", charset="latin1")
        sql_server.execute("UPDATE shop.a SET x = 11")
        await running.settle()
        assert [row.columns for row in target.made] == [{"x": 11}]
    sql_server.execute("DROP DATABASE percona")


@pytest.mark.system
async def test_a_user_that_may_see_triggers_knows_what_a_heartbeat_writes(
    mariadb: SqlServer,
) -> None:
    mariadb.execute(
        "DROP DATABASE IF EXISTS percona",
        "CREATE DATABASE percona",
        "CREATE TABLE percona.heartbeat (id INT PRIMARY KEY, ts INT)",
        "CREATE TABLE mysql.rds_heartbeat2 (id INT PRIMARY KEY, ts INT)",
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "INSERT INTO shop.a VALUES (1)",
        "CREATE OR REPLACE USER reader IDENTIFIED BY 'secret'",
        "GRANT SELECT ON shop.* TO reader",
        "GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO reader",
    )
    beats = "REPLACE INTO {} VALUES (1, UNIX_TIMESTAMP(NOW()))"
    target = MemoryTarget()
    try:
        async with following(mariadb, target, user="reader", password="secret") as running:
            await running.settle()
            for grant, table, copies in (
                (None, "mysql.rds_heartbeat2", 0),
                (None, "percona.heartbeat", 1),
                ("GRANT SELECT, TRIGGER ON percona.* TO reader", "percona.heartbeat", 0),
            ):
                mariadb.execute(*([grant] if grant else []))
                target.made.clear()
                log_statements(mariadb, beats.format(table))
                await running.settle()
                assert len(target.made) == copies, (grant, table)
    finally:
        mariadb.execute(
            "DROP USER reader", "DROP DATABASE percona", "DROP TABLE mysql.rds_heartbeat2"
        )


@pytest.mark.system
async def test_a_trigger_that_writes_a_followed_table_is_not_missed(sql_server: SqlServer) -> None:
    sql_server.execute(
        "DROP DATABASE IF EXISTS percona",
        "CREATE DATABASE percona",
        "CREATE TABLE percona.heartbeat (id INT PRIMARY KEY)",
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "CREATE TRIGGER percona.t AFTER INSERT ON percona.heartbeat FOR EACH ROW"
        " INSERT INTO shop.a VALUES (NEW.id)",
        "CREATE FUNCTION shop.f(n INT) RETURNS INT DETERMINISTIC MODIFIES SQL DATA"
        " BEGIN INSERT INTO shop.a VALUES (n); RETURN n; END",
        "CREATE VIEW percona.v AS SELECT id FROM shop.b",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        statements = ["INSERT INTO percona.heartbeat VALUES (1)", "SELECT shop.f(2)"]
        statements += ["INSERT INTO percona.v VALUES (3)"]
        for statement in statements:
            log_statements(sql_server, statement)
        await running.settle()
        assert set(plain(target.rows["a"])) == {(1,), (2,)}
        assert set(plain(target.rows["b"])) == {(3,)}
    sql_server.execute("DROP DATABASE percona")


@pytest.mark.system
async def test_a_statement_on_a_followed_table_copies_that_table_alone(
    sql_server: SqlServer,
) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "INSERT INTO shop.a VALUES (1, 10), (2, 20)",
        "INSERT INTO shop.b VALUES (1)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        log_statements(
            sql_server,
            "DELETE FROM shop.a WHERE id = 1",
        )
        await running.settle()
        assert plain(target.rows["a"]) == {(2,): {"x": 20}}
        log_statements(
            sql_server,
            "WITH c AS (SELECT 2 AS id) DELETE FROM shop.a WHERE id IN (SELECT id FROM c)"
            if not isinstance(sql_server, MariaDB)
            else "DELETE FROM shop.a WHERE id = 2",
        )
        assert {row.table for row in target.made} == {"a"}
        await running.settle()
        assert plain(target.rows["a"]) == {}
