"""What only MySQL's own server has: its GTIDs, its forms of transactions, its refusals."""

from __future__ import annotations

import json
import ssl

import pytest

from demo.servers.sql_server import SqlServer, numbers
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.mysql.gtids import IntervalGtids
from rowtide.connectors.sources.mysql.log_mysql import MySqlLog
from rowtide.connectors.sources.mysql.window import ChunkWindow
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, plain, source_of

ONE, TWO = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


def test_gtids_are_intervals_by_server_and_tag() -> None:
    found = IntervalGtids(f"{ONE}:1-3:7,\n{TWO}:5:tag:1-2")
    assert found.text() == f"{ONE}:1-3:7,{TWO}:5,{TWO}:tag:1-2"
    for number in (5, 4, 6):
        found.add(f"{ONE}:{number}")
    found.add(f"{TWO}:tag:9")
    assert found.text() == f"{ONE}:1-7,{TWO}:5,{TWO}:tag:1-2:9"
    assert f"{ONE}:7" in found
    assert f"{ONE}:8" not in found
    assert f"{TWO}:other:1" not in found
    assert found.includes(IntervalGtids(f"{ONE}:2-6"))
    assert not found.includes(IntervalGtids(f"{TWO}:tag:2-3"))
    assert IntervalGtids(found.text()) == found


def test_gtids_without_tags_are_sent_in_the_form_of_servers_that_know_none() -> None:
    sent = IntervalGtids(f"{ONE}:1-3").encode()
    assert sent == b"\1" + bytes(7) + bytes(15) + b"\1" + b"\1" + bytes(7) + b"\1" + bytes(
        7
    ) + b"\4" + bytes(7)


@pytest.mark.system
async def test_transactions_of_every_form_are_followed(mysql: SqlServer) -> None:
    mysql.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)")
    target = MemoryTarget()
    for first in (10, 20):
        async with following(mysql, target) as running:
            await running.settle()
            mysql.execute(
                "SET gtid_next = 'AUTOMATIC:of_a_tag'",
                f"INSERT INTO shop.a VALUES ({first}, 1)",
                "SET gtid_next = 'AUTOMATIC'",
                "XA START 'x'",
                f"INSERT INTO shop.a VALUES ({first + 1}, 1)",
                "XA END 'x'",
                "XA COMMIT 'x' ONE PHASE",
                f"CREATE TABLE shop.b{first} (id INT PRIMARY KEY) SELECT id FROM shop.a",
            )
            await running.settle()
            assert running.lives == 1
    assert plain(target.rows["a"]) == {(key,): {"x": 1} for key in (10, 11, 20, 21)}
    assert set(plain(target.rows["b20"])) == {(10,), (11,), (20,), (21,)}
    assert target.skipped == 0
    assert ":of_a_tag:1-2" in json.loads(target.kept)["gtids"]


@pytest.mark.system
async def test_what_is_compressed_copies_all_again(mysql: SqlServer) -> None:
    mysql.execute("CREATE TABLE shop.a (id INT PRIMARY KEY, doc JSON)")
    target = MemoryTarget()
    async with following(mysql, target) as running:
        await running.settle()
        mysql.execute(
            "SET binlog_transaction_compression = ON",
            f"INSERT INTO shop.a SELECT seq, '{{}}' FROM {numbers(100)}",
        )
        await running.settle()
        assert len(target.rows["a"]) == 100
        mysql.execute(
            "SET binlog_row_value_options = 'PARTIAL_JSON'",
            "UPDATE shop.a SET doc = JSON_OBJECT('a', 1, 'b', REPEAT('x', 100)) WHERE id = 5",
            "UPDATE shop.a SET doc = JSON_SET(doc, '$.a', 2) WHERE id = 5",
        )
        await running.settle()
    doc = (target.rows["a"][(("id", 5),)] or {})["doc"]
    assert isinstance(doc, str)
    assert json.loads(doc)["a"] == 2


@pytest.mark.system
@pytest.mark.parametrize("most", [6, 20], ids=["less than before", "more than before"])
async def test_a_server_that_was_reset_is_copied_again(make_mysql: MakeServer, most: int) -> None:
    server = make_mysql()
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)")
    server.execute("INSERT INTO shop.a VALUES (1), (2)")
    target = MemoryTarget()
    async with following(server, target) as running:
        await running.settle()
    # What it makes now has the same GTIDs.
    server.execute("DELETE FROM shop.a WHERE id = 2", "RESET BINARY LOGS AND GTIDS")
    server.execute(*(f"INSERT INTO shop.a VALUES ({number})" for number in range(5, most)))
    async with following(server, target) as running:
        await running.until(lambda: json.loads(target.kept)["epoch"] == 2, "it begins anew")
        await running.settle()
    assert set(plain(target.rows["a"])) == {(1,), *((number,) for number in range(5, most))}


@pytest.mark.system
async def test_a_server_that_can_not_be_followed_is_told_everything(
    make_mysql: MakeServer,
) -> None:
    server = make_mysql(
        "--gtid-mode=ON_PERMISSIVE",
        "--binlog-row-image=MINIMAL",
        "--binlog-row-metadata=MINIMAL",
        "--binlog-row-value-options=PARTIAL_JSON",
        "--binlog-transaction-compression=ON",
        "--log-replica-updates=OFF",
        "--binlog-ignore-db=other",
    )
    with pytest.raises(SettingsRefused) as caught:
        await source_of(server).run(MemoryTarget())
    for wanted in (
        "gtid_mode is ON_PERMISSIVE; it must be ON.",
        "binlog_row_image is MINIMAL; it must be FULL.",
        "binlog_row_metadata is MINIMAL; it must be FULL.",
        "binlog_row_value_options is PARTIAL_JSON; it must be empty.",
        "binlog_transaction_compression is ON; it must be OFF.",
        "log_replica_updates is OFF; it must be ON.",
        "binlog_ignore_db",
    ):
        assert wanted in str(caught.value)


@pytest.mark.system
@pytest.mark.parametrize("sound", [True, False], ids=["as it is", "without the window"])
async def test_what_changes_while_a_moment_is_opened_is_taken_from_the_binlog(
    mysql: SqlServer, monkeypatch: pytest.MonkeyPatch, sound: bool
) -> None:
    """The control: where a chunk leaves nothing out, this very comparison finds the difference."""
    mysql.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, x INT)",
        "INSERT INTO shop.a VALUES (1, 10), (2, 20), (3, 30)",
    )
    left = ["UPDATE shop.a SET x = 99 WHERE id = 1", "DELETE FROM shop.a WHERE id = 2"]
    end = MySqlLog.end
    asked: list[MySqlLog] = []

    def overtaken(self: MySqlLog) -> tuple[str, int]:
        # The first call asks where to begin, the next for the place of an open read view.
        while asked and left:
            mysql.execute(left.pop())
        asked.append(self)
        return end(self)

    if not sound:
        monkeypatch.setattr(ChunkWindow, "filter_rows", lambda self, rows: rows)
    target = MemoryTarget()
    with monkeypatch.context() as patch:
        patch.setattr(MySqlLog, "end", overtaken)
        async with following(mysql, target, chunk_rows=10) as running:
            await running.settle()
            await running.settle()  # What was changed amid the copy is known to the server now.
    assert (plain(target.rows["a"]) == {(1,): {"x": 99}, (3,): {"x": 30}}) is sound


@pytest.mark.system
async def test_a_user_with_a_password_and_the_rights_that_are_told(mysql: SqlServer) -> None:
    mysql.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "CREATE USER reader IDENTIFIED BY 'secret'",
        "GRANT SELECT ON shop.* TO reader",
        "INSERT INTO shop.a VALUES (1)",
    )
    user = {"user": "reader", "password": "secret"}

    async def refusal() -> str:
        with pytest.raises(SettingsRefused) as caught:
            await source_of(mysql, **user).run(MemoryTarget())
        return str(caught.value)

    try:
        # Without TLS the server requires RSA for a password until it has cached it.
        assert "`tls: true`" in await refusal()
        tls = {"ssl": ssl.create_default_context(cafile=mysql.folder / "rows" / "ca.pem")}
        tls["ssl"].check_hostname = False
        mysql.connect(**user, ssl_disabled=False, **tls).close()
        assert "REPLICATION CLIENT" in await refusal()
        mysql.execute("GRANT REPLICATION CLIENT ON *.* TO reader")
        assert "REPLICATION SLAVE" in await refusal()
        mysql.execute("GRANT REPLICATION SLAVE ON *.* TO reader")
        target = MemoryTarget()
        async with following(mysql, target, **user) as running:
            await running.settle()
        assert plain(target.rows["a"]) == {(1,): {}}
    finally:
        mysql.execute("DROP USER reader")
