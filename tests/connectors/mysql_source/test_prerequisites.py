"""What a source asks of the server, of its user and of tables, and how it says what is lacking."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.servers.sql_server import SqlServer
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.registry import make_source as make_registered_source
from rowtide.connectors.sources.mysql.grants import missing_grants
from rowtide.connectors.sources.mysql.source import make_source
from rowtide.core.values.errors import Unavailable
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, plain, source_of

REPLICATION = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`"
PAGE = Path(__file__).resolve().parents[3] / "docs/guides/connectors/mysql-source.md"


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"user": "x", "tables": ["shop.*"]}, "source.host is missing"),
        ({"host": "x", "user": "x"}, "source.tables must name tables"),
        ({"host": "x", "user": "x", "tables": ["orders"]}, "has 'orders'"),
        ({"host": "x", "user": "x", "tables": ["a.*"], "chunk_rows": 0}, "chunk_rows must be"),
        (
            {"host": "x", "user": "x", "tables": ["a.*"], "names": {"b.t": "t"}},
            "source.names has 'b.t', but the source follows no such table",
        ),
        (
            {"host": "x", "user": "x", "tables": ["a.*"], "keys": {"t": ["x"]}},
            "source.keys has 't', but the source follows no such table",
        ),
        (
            {"host": "x", "user": "x", "tables": ["a.*"], "names": {"a.t": "a.t"}},
            "source.names.a.t must be 1 to 255 letters",
        ),
    ],
)
def test_settings_are_refused_with_their_place(settings: dict[str, Any], fault: str) -> None:
    with pytest.raises(SettingsRefused, match=fault):
        make_source(Fields(settings, "source"), ConnectorContext("shop", ""))


def test_the_page_s_example_is_taken_and_every_setting_told() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", text, re.S)
    given = yaml.safe_load(example)["connectors"]["shop"]["source"]
    fields = Fields(given, "source", environment={"SHOP_PASSWORD": "x"})
    make_registered_source(fields, ConnectorContext("shop", ""))
    assert fields._asked - {"kind"} <= set(re.findall(r"`(\w+)`", text))


async def _refusal(server: SqlServer, **settings: Any) -> str:
    with pytest.raises(SettingsRefused) as caught:
        await source_of(server, **settings).run(MemoryTarget())
    return str(caught.value)


@pytest.mark.system
async def test_a_server_that_can_not_be_followed_is_told_everything(
    make_mariadb: MakeServer,
) -> None:
    server = make_mariadb(
        "--binlog-format=MIXED",
        "--binlog-row-image=MINIMAL",
        "--binlog-row-metadata=MINIMAL",
        "--binlog-ignore-db=other",
    )
    text = await _refusal(server)
    assert "binlog_format is MIXED; it must be ROW." in text
    assert "binlog_row_image is MINIMAL; it must be FULL." in text
    assert "binlog_row_metadata is MINIMAL; it must be FULL." in text
    assert "binlog_ignore_db" in text


@pytest.mark.system
@pytest.mark.parametrize("by", ["user", "role"])
async def test_a_user_is_told_at_once_all_that_is_to_be_granted(
    sql_server: SqlServer, by: str
) -> None:
    """Once only the server's first error was reported, and missing grants came one by one."""
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY)",
        "INSERT INTO shop.a VALUES (1)",
        "DROP USER IF EXISTS reader",
        "CREATE USER reader IDENTIFIED BY ''",
    )
    user = {"user": "reader", "tables": ["shop.a", "crm.*", "shop.b"]}
    message = await _refusal(sql_server, **user)
    statements = re.findall(r"GRANT [^;]*;", message)
    assert statements == [
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `reader`@`%`;",
        "GRANT SELECT ON `shop`.`a` TO `reader`@`%`;",
        "GRANT SELECT ON `crm`.* TO `reader`@`%`;",
        "GRANT SELECT ON `shop`.`b` TO `reader`@`%`;",
    ]
    if by == "role":
        sql_server.execute("DROP ROLE IF EXISTS crew", "CREATE ROLE crew", "GRANT crew TO reader")
        to = "TO" if "MariaDB" not in str(sql_server.rows("SELECT VERSION()")) else "FOR"
        sql_server.execute(f"SET DEFAULT ROLE crew {to} reader")
        statements = [statement.replace("`reader`@`%`", "crew") for statement in statements]
    for at, statement in enumerate(statements):
        assert re.findall("GRANT", await _refusal(sql_server, **user)) == ["GRANT"] * (4 - at)
        # A table that is not there can be granted only with its rights to be made.
        sql_server.execute(statement.replace("SELECT ON `shop`.`b`", "SELECT, CREATE ON shop.b"))
    target = MemoryTarget()
    async with following(sql_server, target, **user) as running:
        await running.settle()
    assert plain(target.rows["a"]) == {(1,): {}}
    sql_server.execute("DROP USER reader", *["DROP ROLE crew"] * (by == "role"))


@pytest.mark.system
async def test_a_wrong_password_is_told(mariadb: SqlServer) -> None:
    mariadb.execute("CREATE OR REPLACE USER reader IDENTIFIED BY 'secret'")
    assert "Access denied" in await _refusal(mariadb, user="reader", password="wrong")
    mariadb.execute("DROP USER reader")


@pytest.mark.system
async def test_settings_and_grants_are_told_together(make_mariadb: MakeServer) -> None:
    server = make_mariadb("--binlog-format=MIXED")
    server.execute("CREATE USER reader IDENTIFIED BY ''")
    message = await _refusal(server, user="reader")
    assert "binlog_format is MIXED" in message
    assert "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.*" in message
    assert "GRANT SELECT ON `shop`.*" in message


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"], []),
        (["GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`"], []),
        (["GRANT SELECT, REPLICATION REPLICA, BINLOG MONITOR ON *.* TO `u`@`%`"], []),
        (["GRANT SELECT ON *.* TO `u`@`%`"], ["REPLICATION SLAVE, REPLICATION CLIENT ON *.*"]),
        (["GRANT ALL PRIVILEGES ON `shop`.* TO `u`@`%`", REPLICATION], []),
        (["GRANT SELECT ON `sh%`.* TO `u`@`%`", REPLICATION], []),
        (["GRANT SELECT ON `sh\\_p`.* TO `u`@`%`", REPLICATION], ["SELECT ON `shop`.*"]),
        (["GRANT SELECT ON `sh_p`.* TO `u`@`%`", REPLICATION], []),
        (["GRANT SELECT ON `other`.* TO `u`@`%`", REPLICATION], ["SELECT ON `shop`.*"]),
        (["GRANT INSERT ON `shop`.* TO `u`@`%`", REPLICATION], ["SELECT ON `shop`.*"]),
        (["GRANT SELECT ON `shop`.`a``b` TO `u`@`%`", REPLICATION], []),
        (["GRANT INSERT, SELECT (`a`, `b`) ON `shop`.`a` TO `u`@`%`", REPLICATION], []),
        (["GRANT SELECT ON shop.a TO u@'%'", REPLICATION], []),
        (["GRANT `r`@`%` TO `u`@`%`", REPLICATION], ["SELECT ON `shop`.*"]),
        (["GRANT PROXY ON ''@'%' TO 'u'@'%'", REPLICATION], ["SELECT ON `shop`.*"]),
    ],
)
def test_grants_are_read_as_the_server_shows_them(lines: list[str], missing: list[str]) -> None:
    wanted = [f"GRANT {privileges} TO `u`@`%`;" for privileges in missing]
    assert missing_grants(lines, "u@%", ["shop.*", "*.x"]) == wanted


@pytest.mark.system
async def test_names_keys_and_patterns_decide_what_becomes_of_tables(sql_server: SqlServer) -> None:
    sql_server.execute(
        "CREATE TABLE shop.a (id INT PRIMARY KEY, place INT NOT NULL, n INT NOT NULL,"
        " UNIQUE (n, place))",
        "CREATE TABLE shop.left_out (x INT)",
        "INSERT INTO shop.a VALUES (1, 2, 3)",
        "DROP DATABASE IF EXISTS other",
        "CREATE DATABASE other",
        "CREATE TABLE other.a (id INT PRIMARY KEY)",
    )
    settings: dict[str, Any] = {"tables": ["shop.*", "other.?"], "except": ["shop.left_*"]}
    settings |= {"names": {"shop.a": "places"}, "keys": {"shop.a": ["place", "n"]}}
    target = MemoryTarget()
    async with following(sql_server, target, **settings) as running:
        await running.settle()
        sql_server.execute("UPDATE shop.a SET id = 5")
        await running.settle()
    sql_server.execute("DROP DATABASE other")
    assert target.rows == {"places": {(("place", 2), ("n", 3)): {"id": 5}}, "a": {}}


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    fields = Fields({"host": "127.0.0.1", "port": 1, "user": "x", "tables": ["a.*"]}, "source")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        await make_source(fields, ConnectorContext("shop", "")).run(MemoryTarget())


@pytest.mark.system
async def test_a_pattern_that_no_table_fits_is_warned_of(
    mariadb: SqlServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A source with a misspelt name ran without rows, lag or warning."""
    mariadb.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    target = MemoryTarget()
    async with following(mariadb, target, tables=["shop.orders", "shop.oders"]) as running:
        await running.settle()
    assert [text for text in caplog.messages if "no table" in text] == [
        "no table at the source matches shop.oders"
    ]
