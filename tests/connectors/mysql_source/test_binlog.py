"""What is followed: keys that change, transactions of all forms, positions that are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from demo.servers.sql_server import SqlServer, numbers
from rowtide.connectors.sources.mysql import held as source_held
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, plain
from tests.connectors.running_source import check_lag

pytestmark = pytest.mark.system


def _read_checkpoint(target: MemoryTarget) -> Any:
    return json.loads(target.kept)


async def test_a_change_is_a_merge_a_put_or_a_delete(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (name VARCHAR(9), part INT, x INT, y INT, PRIMARY KEY (name, part))",
        "INSERT INTO shop.a VALUES ('ant', 1, 10, 100), ('bee', 1, 20, NULL)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        target.made.clear()
        sql_server.execute(
            "UPDATE shop.a SET x = 11, y = NULL WHERE name = 'ant'",
            "UPDATE shop.a SET part = 2 WHERE name = 'bee'",
            "UPDATE shop.a SET name = 'ANT' WHERE name = 'ant'",
            "INSERT INTO shop.a VALUES ('cat', 1, 1, NULL)",
            "DELETE FROM shop.a WHERE name = 'cat'",
        )
        await running.settle()
    assert [
        (row.key, row.columns, row.whole)
        for row in sorted(target.made, key=lambda row: row.position)
    ] == [
        ((("name", "ant"), ("part", 1)), {"x": 11, "y": None}, False),
        ((("name", "bee"), ("part", 1)), None, True),
        ((("name", "bee"), ("part", 2)), {"x": 20}, True),
        ((("name", "ant"), ("part", 1)), None, True),
        ((("name", "ANT"), ("part", 1)), {"x": 11}, True),
        ((("name", "cat"), ("part", 1)), {"x": 1}, True),
        ((("name", "cat"), ("part", 1)), None, True),
    ]
    [(now_s,)] = sql_server.rows("SELECT UNIX_TIMESTAMP(NOW(3))")
    assert all(0 <= float(now_s) - row.time_ms / 1000 < 60 for row in target.made)


async def test_only_what_was_committed_comes(mariadb: SqlServer) -> None:
    mariadb.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    mariadb.execute("CREATE TABLE shop.plain (id INT PRIMARY KEY) ENGINE = Aria TRANSACTIONAL = 0")
    target = MemoryTarget()
    async with following(mariadb, target) as running:
        await running.settle()
        with mariadb.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO shop.a VALUES (1, 1)")
            cursor.execute("SAVEPOINT one")
            cursor.execute("INSERT INTO shop.a VALUES (2, 2)")
            cursor.execute("ROLLBACK TO one")
            connection.commit()
            cursor.execute("INSERT INTO shop.a VALUES (3, 3)")
            cursor.execute("INSERT INTO shop.plain VALUES (3)")  # It stays, rolled back or not.
            connection.rollback()
        await running.settle()
    assert plain(target.rows["a"]) == {(1,): {"x": 1}}
    assert plain(target.rows["plain"]) == {(3,): {}}


async def test_gtids_of_several_domains_are_followed(mariadb: SqlServer) -> None:
    mariadb.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    target = MemoryTarget()
    for round_number in range(3):
        async with following(mariadb, target) as running:
            await running.settle()
            for domain in (0, 5, 7, 5):
                mariadb.execute(
                    f"SET SESSION gtid_domain_id = {domain}",
                    f"INSERT INTO shop.a VALUES ({round_number * 10 + domain}, 0)"
                    " ON DUPLICATE KEY UPDATE x = x + 1",
                )
            await running.settle()
    assert {0, 5, 7} <= {
        int(gtid.split("-")[0]) for gtid in _read_checkpoint(target)["gtids"].split(",")
    }
    assert _read_checkpoint(target)["epoch"] == 1
    assert (len(target.made), target.skipped) == (12, 0)
    assert plain(target.rows["a"])[(25,)] == {"x": 1}


async def test_a_transaction_larger_than_the_memory_for_it(
    sql_server: SqlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are in the connector's folder, which the source creates."""
    folder = str(tmp_path / "connectors" / "shop")
    monkeypatch.setattr(source_held, "HELD_BYTES", 1000)
    sql_server.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x VARCHAR(99))")
    target = MemoryTarget()
    async with following(sql_server, target, folder=folder) as running:
        await running.settle()
        sql_server.execute(
            f"INSERT INTO shop.a SELECT seq, REPEAT('x', 99) FROM {numbers(5000)}",
            "UPDATE shop.a SET x = id",
        )
        await running.settle()
    assert plain(target.rows["a"]) == {(n,): {"x": str(n)} for n in range(1, 5001)}
    assert running.lives == 1


@pytest.mark.parametrize(
    "options",
    [("--log-bin-compress", "--log-bin-compress-min-len=10"), ("--binlog-checksum=NONE",)],
    ids=["compressed", "without checksums"],
)
async def test_other_forms_of_the_binlog(make_mariadb: MakeServer, options: tuple[str]) -> None:
    server = make_mariadb(*options)
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, x TEXT)")
    target = MemoryTarget()
    async with following(server, target) as running:
        await running.settle()
        server.execute(
            f"INSERT INTO shop.a SELECT seq, REPEAT('x', 300) FROM {numbers(100)}",
            "FLUSH BINARY LOGS",
            "UPDATE shop.a SET x = 'y' WHERE id < 51",
            "DELETE FROM shop.a WHERE id > 52",
            "ALTER TABLE shop.a ADD COLUMN something_with_a_long_name INT NOT NULL DEFAULT 5",
        )
        await running.settle()
    wanted = {"x": "y", "something_with_a_long_name": 5}
    assert plain(target.rows["a"]) == {(n,): wanted for n in range(1, 51)} | {
        (n,): {**wanted, "x": "x" * 300} for n in (51, 52)
    }
    assert running.lives == 1


async def test_what_was_purged_is_made_up_by_a_snapshot(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = make_server()
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "CREATE TABLE shop.b (id VARCHAR(9) PRIMARY KEY)",
        f"INSERT INTO shop.a SELECT seq, seq FROM {numbers(2500)}",
        "INSERT INTO shop.b VALUES ('ant'), ('Bee'), ('cat')",
    )
    target = MemoryTarget()
    async with following(server, target, chunk_rows=300) as running:
        await running.settle()
    server.execute(
        "DELETE FROM shop.a WHERE id % 100 = 7",
        "UPDATE shop.a SET x = -1 WHERE id = 9",
        "INSERT INTO shop.a VALUES (3000, 1)",
        "UPDATE shop.b SET id = 'bee' WHERE id = 'Bee'",
    )
    _purge(server)
    server.execute("INSERT INTO shop.a VALUES (3001, 1)")
    async with following(server, target, chunk_rows=300) as running:
        await running.settle()
        server.execute("INSERT INTO shop.a VALUES (3002, 1)")
        await running.settle()
    assert "changes were missed" in caplog.text
    assert "#HY000" not in caplog.text
    assert _read_checkpoint(target)["epoch"] > 1
    assert plain(target.rows["a"]) == {
        (n,): {"x": x} for n, x in server.rows("SELECT * FROM shop.a")
    }
    assert set(plain(target.rows["b"])) == {("ant",), ("bee",), ("cat",)}


async def test_a_binlog_that_began_anew_is_noticed(make_mariadb: MakeServer) -> None:
    server = make_mariadb()
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        f"INSERT INTO shop.a SELECT seq FROM {numbers(50)}",
    )
    target = MemoryTarget()
    async with following(server, target) as running:
        await running.settle()
    server.execute(
        "RESET MASTER", "DELETE FROM shop.a WHERE id = 7", "INSERT INTO shop.a VALUES (99)"
    )
    async with following(server, target) as running:
        await running.until(lambda: (("id", 99),) in target.rows["a"], "the new row")
        server.execute("DELETE FROM shop.a WHERE id = 8")
        await running.settle()
    assert set(plain(target.rows["a"])) == {(n,) for n in (*range(1, 51), 99) if n not in (7, 8)}


def _purge(server: SqlServer) -> None:
    """Drop every file of the binlog but the last; one that a crash would need is not dropped."""
    while len(files := server.rows("SHOW BINARY LOGS")) == 1 or files[0][0] == "binlog.000001":
        server.execute("FLUSH BINARY LOGS", f"PURGE BINARY LOGS TO '{files[-1][0]}'")


async def test_a_place_that_is_gone_does_no_harm_where_nothing_was_missed(
    make_server: MakeServer,
) -> None:
    server = make_server()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)")
    target = MemoryTarget()
    async with following(server, target) as running:
        await running.settle()
    _purge(server)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute("CREATE TABLE shop.b (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO shop.b SELECT seq FROM {numbers(9)}")
    # No event in the binlog shows where it is now; only the server's heartbeat does.
    async with following(server, target) as running:
        await running.until(lambda: len(target.rows.get("b", ())) == 9, "the new table is copied")
    assert _read_checkpoint(target)["epoch"] == 2
    assert running.lives == 1


async def test_a_table_that_is_followed_again_is_copied_again(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "CREATE TABLE shop.b (id INT PRIMARY KEY)",
        "INSERT INTO shop.b VALUES (1), (2)",
    )
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
    async with following(sql_server, target, tables=["shop.a"]) as running:
        sql_server.execute("DELETE FROM shop.b WHERE id = 1", "INSERT INTO shop.b VALUES (3)")
        await running.settle()
    async with following(sql_server, target) as running:
        await running.until(
            lambda: "shop.b" in _read_checkpoint(target)["tables"], "it is followed"
        )
        await running.settle()
    assert set(plain(target.rows["b"])) == {(2,), (3,)}


async def test_it_tells_how_far_it_is_behind(sql_server: SqlServer) -> None:
    sql_server.execute("CREATE TABLE shop.a (id INT PRIMARY KEY)")
    async with following(sql_server, MemoryTarget()) as running:
        await running.settle()
        insert = f"INSERT INTO shop.a SELECT seq FROM {numbers(100)}"
        await check_lag(running, lambda: sql_server.execute(insert))
        # Also where the end lies in another file, that holds no change.
        sql_server.execute("FLUSH BINARY LOGS")
        await check_lag(
            running, lambda: sql_server.execute("DELETE FROM shop.a", "FLUSH BINARY LOGS")
        )
