"""A table that can't be followed stops no other, and says why and what to do."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from demo.servers.mysql import MySQL
from demo.servers.sql_server import SqlServer
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sources.mysql import states as source_states
from rowtide.core.values.errors import Rejected
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.following import following, plain

pytestmark = pytest.mark.system

UNFIT = [
    ("bad (x INT)", "it has no primary key"),
    ("bad (x INT, UNIQUE KEY (x))", "it has no primary key"),
    ("bad (x FLOAT PRIMARY KEY)", "types that no key can have: x (float)"),
    ("bad (x ENUM('a') PRIMARY KEY)", "types that no key can have: x (enum)"),
    ("bad (x TEXT, PRIMARY KEY (x(9)))", "only the first characters of x"),
    ("bad (a INT, b INT, c INT, d INT, e INT, PRIMARY KEY (a,b,c,d,e))", "its key has 5 columns"),
    ("bad (x INT PRIMARY KEY, y TEXT COMPRESSED)", "types that can't be followed: y"),
    ("bad (x INT PRIMARY KEY) WITH SYSTEM VERSIONING", "it is system-versioned"),
    ("`b-d` (x INT PRIMARY KEY)", "rowtide has no table names such as 'b-d'"),
    ("`\u8ba2\u5355` (x INT PRIMARY KEY)", "rowtide has no table names such as"),
    (
        "bad (x INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES good (id) ON DELETE CASCADE)",
        "fo",
    ),
]


@pytest.mark.parametrize(("table", "reason"), UNFIT)
async def test_a_table_that_can_not_be_followed_stops_no_other(
    mariadb: SqlServer, table: str, reason: str
) -> None:
    mariadb.execute("CREATE TABLE shop.good (id INT PRIMARY KEY)", f"CREATE TABLE shop.{table}")
    name = "shop." + table.partition(" ")[0].strip("`")
    target = MemoryTarget()
    async with following(mariadb, target) as running:
        found = await running.wait_until_state(name, "failed")
        assert reason in found.reason
        assert found.remedy
        mariadb.execute("INSERT INTO shop.good VALUES (1)")
        await running.settle()
        assert plain(target.rows["good"]) == {(1,): {}}
        assert list(target.rows) == ["good"]
        assert running.lives == 1


async def test_a_table_becomes_unfit_and_fit_again(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.good (id INT PRIMARY KEY)",
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "INSERT INTO shop.a VALUES (1, 10), (2, 20)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        assert (await running.wait_until_state("shop.a", "following")).rows_copied == 2
        sql_server.execute("ALTER TABLE shop.a DROP PRIMARY KEY")
        assert "no primary key" in (await running.wait_until_state("shop.a", "failed")).reason
        sql_server.execute(
            "DELETE FROM shop.a WHERE id = 1",
            "INSERT INTO shop.a VALUES (3, 30)",
            "INSERT INTO shop.good VALUES (1)",
            "ALTER TABLE shop.a ADD PRIMARY KEY (id)",
            "INSERT INTO shop.a VALUES (4, 40)",
        )
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(n,): {"x": n * 10} for n in (2, 3, 4)}
        assert plain(target.rows["good"]) == {(1,): {}}
        sql_server.execute("CREATE TABLE shop.late (x INT)")
        await running.wait_until_state("shop.late", "failed")
        sql_server.execute("DROP TABLE shop.late")
        await running.until(lambda: running.state("shop.late") is None, "it is gone")
        assert running.lives == 1


async def test_a_table_that_failed_and_is_made_if_it_is_missing_has_its_rows(
    sql_server: SqlServer,
) -> None:
    made = "CREATE TABLE IF NOT EXISTS shop.a (id INT, x INT)"
    sql_server.execute(made, "INSERT INTO shop.a VALUES (1, 10)")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.wait_until_state("shop.a", "failed")
        sql_server.execute("SET sql_log_bin = 0", "ALTER TABLE shop.a ADD PRIMARY KEY (id)")
        sql_server.execute(made)
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {"x": 10}}
        assert running.lives == 1


def _make(server: SqlServer, *names: str) -> None:
    """Make tables of one column with the row 1."""
    for name in names:
        server.execute(
            f"CREATE TABLE shop.{name} (id INT PRIMARY KEY)", f"INSERT INTO shop.{name} VALUES (1)"
        )


def _put_file_back(server: SqlServer, name: str) -> None:
    """Give a table whose file was discarded that of another table, with the row 7."""
    folder = server.folder / "rows" / "shop"
    with server.connect(database="shop") as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"CREATE TABLE other LIKE {name}")
        cursor.execute("INSERT INTO other VALUES (7)")
        cursor.execute("FLUSH TABLES other FOR EXPORT")
        shutil.copy(folder / "other.ibd", folder / f"{name}.ibd")
        cursor.execute("UNLOCK TABLES")
        cursor.execute("DROP TABLE other")


def _failures(caplog: pytest.LogCaptureFixture) -> list[float]:
    """Return when a table was logged as failed."""
    return [each.created for each in caplog.records if "is not followed" in each.getMessage()]


async def test_a_table_whose_rows_can_not_be_read_stops_no_other(
    sql_server: SqlServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To read none of its rows is no fault: its file is looked for with the first."""
    monkeypatch.setattr(source_states, "LOOK_S", 0.05)
    _make(sql_server, "a", "b")
    sql_server.execute("ALTER TABLE shop.a DISCARD TABLESPACE")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        failed = await running.wait_until_state("shop.a", "failed")
        assert "iscarded" in failed.reason
        await running.until(lambda: len(_failures(caplog)) >= 4, "it was tried again")
        tries_s = _failures(caplog)
        # Pauses of 0.05, 0.1 and 0.2 s.
        assert tries_s[3] - tries_s[0] > 0.35
        await running.wait_until_state("shop.b", "following")
        await running.settle()
        assert plain(target.rows["b"]) == {(1,): {}}
        _put_file_back(sql_server, "a")
        sql_server.execute("SET sql_log_bin = 0", "ALTER TABLE shop.a IMPORT TABLESPACE")
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(7,): {}}
        assert running.lives == 1


async def test_a_table_waits_until_a_statement_is_about_it(
    sql_server: SqlServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_states, "LOOK_S", 3600.0)
    _make(sql_server, "a", "b")
    sql_server.execute(
        "ALTER TABLE shop.a DISCARD TABLESPACE",
        "CREATE TABLE shop.c (id INT)",
        "INSERT INTO shop.c VALUES (1)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.wait_until_state("shop.a", "failed")
        monkeypatch.setattr(source_states, "LOOK_S", 0.05)
        # A table that is fit again begins a new life of the source.
        sql_server.execute("SET sql_log_bin = 0", "ALTER TABLE shop.c ADD PRIMARY KEY (id)")
        await running.wait_until_state("shop.c", "following")
        assert "iscarded" in (await running.wait_until_state("shop.a", "failed")).reason
        assert len([text for text in caplog.messages if "shop.a is not followed" in text]) == 1
        _put_file_back(sql_server, "a")
        sql_server.execute("ALTER TABLE shop.a IMPORT TABLESPACE")
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(7,): {}}
        assert running.lives == 1


class Crowded(MemoryTarget):
    """A target that has room for some tables only."""

    room = 2

    async def ensure_table(self, table: TableShape) -> None:
        if table.name not in self.shapes and len(self.shapes) >= self.room:
            raise Rejected("OTSQuotaExhausted", "The number of tables exceeds the limit.")
        await super().ensure_table(table)


async def test_a_table_that_rowtide_refuses_is_followed_once_it_does_not(
    sql_server: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_states, "LOOK_S", 0.1)
    _make(sql_server, "a", "b", "c")
    target = Crowded()
    async with following(sql_server, target) as running:
        failed = await running.wait_until_state("shop.c", "failed")
        assert "exceeds the limit" in failed.reason
        await running.settle()
        sql_server.execute("CREATE TABLE shop.d (id INT PRIMARY KEY)")
        await running.wait_until_state("shop.d", "failed")
        sql_server.execute("INSERT INTO shop.d VALUES (2)", "INSERT INTO shop.a VALUES (2)")
        await running.settle()
        assert sorted(plain(target.rows["a"])) == [(1,), (2,)]
        target.room = 9
        for name in ("shop.c", "shop.d"):
            await running.wait_until_state(name, "following")
        await running.settle()
        assert plain(target.rows["c"]) == {(1,): {}}
        assert plain(target.rows["d"]) == {(2,): {}}
        assert running.lives == 1


async def test_two_tables_of_one_name_in_rowtide(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "DROP DATABASE IF EXISTS other",
        "CREATE DATABASE other",
        "CREATE TABLE other.a (id INT PRIMARY KEY)",
    )
    target = MemoryTarget()
    async with following(sql_server, target, tables=["shop.*", "other.*"]) as running:
        failed = await running.wait_until_state("shop.a", "failed")
        assert "other.a and shop.a would both be the table a" in failed.reason
        sql_server.execute("INSERT INTO shop.a VALUES (1)", "INSERT INTO other.a VALUES (2)")
        await running.settle()
        assert plain(target.rows["a"]) == {(2,): {}}
        sql_server.execute("DROP DATABASE other", "ALTER TABLE shop.a COMMENT 'again'")
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(1,): {}}


async def test_a_table_that_the_user_may_not_read_wholly(
    mariadb: SqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_states, "LOOK_S", 0.1)
    mariadb.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY, x INT)",
        "INSERT INTO shop.b VALUES (1, 10)",
        "CREATE OR REPLACE USER reader IDENTIFIED BY 'secret'",
        "GRANT SELECT ON shop.a TO reader",
        "GRANT INSERT ON shop.b TO reader",
        "GRANT BINLOG MONITOR, REPLICATION SLAVE ON *.* TO reader",
    )
    user: dict[str, Any] = {"user": "reader", "password": "secret"}
    target = MemoryTarget()
    async with following(mariadb, target, **user) as running:
        failed = await running.wait_until_state("shop.b", "failed")
        assert "denied" in failed.reason or "refuses" in failed.reason
        await running.wait_until_state("shop.a", "following")
        mariadb.execute("GRANT SELECT ON shop.b TO reader")
        await running.wait_until_state("shop.b", "following")
        await running.settle()
    mariadb.execute("DROP USER reader")
    assert plain(target.rows["b"]) == {(1,): {"x": 10}}


async def test_keys_that_are_hidden(mysql: MySQL) -> None:
    """A key that the server made is followed though a setting hides it; an index can't be."""
    mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF")
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_generate_invisible_primary_key = ON")
        cursor.execute("CREATE TABLE shop.made (x INT)")
    mysql.execute(
        "CREATE TABLE shop.hidden (id INT PRIMARY KEY, x INT NOT NULL, UNIQUE u (x) INVISIBLE)",
        "INSERT INTO shop.made VALUES (7)",
    )
    target = MemoryTarget()
    try:
        async with following(mysql, target, keys={"shop.hidden": ["x"]}) as running:
            failed = await running.wait_until_state("shop.hidden", "failed")
            assert "index u of its key is invisible" in failed.reason
            await running.settle()
            assert list(plain(target.rows["made"]).values()) == [{"x": 7}]
    finally:
        mysql.execute("SET GLOBAL show_gipk_in_create_table_and_information_schema = ON")


async def test_generated_columns_in_keys(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, code INT AS (id * 2) STORED NOT NULL,"
        " UNIQUE (code))"
        if isinstance(sql_server, MySQL)
        else "CREATE TABLE shop.a (id INT PRIMARY KEY, code INT AS (id * 2) STORED, UNIQUE (code))",
        "CREATE TABLE shop.b (id INT PRIMARY KEY, code INT AS (id * 2) VIRTUAL, UNIQUE (code))",
        "INSERT INTO shop.a (id) VALUES (1)",
    )
    keys = {"shop.a": ["code"], "shop.b": ["code"]}
    async with following(sql_server, MemoryTarget(), keys=keys) as running:
        await running.wait_until_state(
            "shop.a", "following" if isinstance(sql_server, MySQL) else "failed"
        )
        assert "no unique index" in (await running.wait_until_state("shop.b", "failed")).reason


async def test_another_primary_key_is_refused_for_its_table_alone(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT NOT NULL)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "INSERT INTO shop.a VALUES (1, 10)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        sql_server.execute(
            "ALTER TABLE shop.a DROP PRIMARY KEY, ADD PRIMARY KEY (x)",
            "INSERT INTO shop.a VALUES (2, 20)",
            "INSERT INTO shop.b VALUES (1)",
        )
        assert "has another key" in (await running.wait_until_state("shop.a", "failed")).reason
        await running.settle()
        assert plain(target.rows["b"]) == {(1,): {}}
        assert plain(target.rows["a"]) == {(1,): {"x": 10}}
        sql_server.execute(
            "DELETE FROM shop.a WHERE id = 1",
            "ALTER TABLE shop.a DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
        )
        await running.wait_until_state("shop.a", "following")
        await running.settle()
        assert plain(target.rows["a"]) == {(2,): {"x": 20}}
        assert running.lives == 1


async def test_rows_of_a_shape_that_is_gone_copy_their_table_alone(mariadb: SqlServer) -> None:
    """A table had no key, and a compressed column, when its rows were written."""
    mariadb.execute(
        "CREATE TABLE shop.a (x INT, y TEXT COMPRESSED)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "INSERT INTO shop.b VALUES (1)",
    )
    target = MemoryTarget()
    async with following(mariadb, target) as running:
        await running.wait_until_state("shop.a", "failed")
        await running.settle()
    target.made.clear()
    mariadb.execute(
        "INSERT INTO shop.a VALUES (1, REPEAT('y', 200))",
        "ALTER TABLE shop.a ADD id INT AUTO_INCREMENT PRIMARY KEY, MODIFY y TEXT",
        "INSERT INTO shop.a (x, y) VALUES (2, 'z')",
    )
    async with following(mariadb, target) as running:
        await running.settle()
    assert plain(target.rows["a"]) == {(1,): {"x": 1, "y": "y" * 200}, (2,): {"x": 2, "y": "z"}}
    assert {row.table for row in target.made} == {"a"}


async def test_a_table_that_is_locked_holds_up_no_other(sql_server: SqlServer) -> None:
    _make(sql_server, "a", "b")
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    with sql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("LOCK TABLES shop.a WRITE")
        async with following(sql_server, target) as running:
            sql_server.execute("INSERT INTO shop.b VALUES (2)")
            await running.settle()
            assert plain(target.rows["b"]) == {(1,): {}, (2,): {}}
        cursor.execute("UNLOCK TABLES")
