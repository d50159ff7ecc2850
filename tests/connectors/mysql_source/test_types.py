"""Each type of MariaDB and MySQL: what becomes of it, from a snapshot and from the binlog alike."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from demo.servers.mysql import MySQL
from demo.servers.sql_server import HOST, SqlServer
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.mysql_source.conftest import MakeServer
from tests.connectors.mysql_source.following import following, plain

pytestmark = pytest.mark.system

WKB_POINT = b"\x01\x01\x00\x00\x00"
ID_1, ID_4 = "6ccd780c-baba-1026-9564-5b8c656024db", "123e4567-e89b-42d3-a456-426655440000"

# Column, its type, an expression, and what it becomes.
VALUES: list[tuple[str, str, str, Any]] = [
    ("tiny", "TINYINT", "-128", -128),
    ("tiny_u", "TINYINT UNSIGNED", "255", 255),
    ("flag", "BOOLEAN", "TRUE", 1),
    ("small", "SMALLINT", "-32768", -32768),
    ("small_u", "SMALLINT UNSIGNED", "65535", 65535),
    ("medium", "MEDIUMINT", "-8388608", -8388608),
    ("medium_u", "MEDIUMINT UNSIGNED", "16777215", 16777215),
    ("plain", "INT", "-2147483648", -2147483648),
    ("plain_u", "INT UNSIGNED ZEROFILL", "42", 42),
    ("big", "BIGINT", "-9223372036854775808", -(2**63)),
    ("big_u", "BIGINT UNSIGNED", "9223372036854775807", 2**63 - 1),
    ("big_u2", "BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615"),
    ("single", "FLOAT", "0.1", 0.10000000149011612),
    ("single2", "FLOAT", "3.4028235e38", 3.4028234663852886e38),
    ("wide", "DOUBLE", "0.1", 0.1),
    ("wide2", "DOUBLE", "2.2250738585072014e-308", 2.2250738585072014e-308),
    ("wide3", "DOUBLE(10,2)", "1234567.89", 1234567.89),
    ("exact", "DECIMAL(30,10)", "-12345678901234567890.0123456789", None),
    ("exact2", "DECIMAL(5,0)", "-99999", "-99999"),
    ("exact3", "DECIMAL(65,30)", "-0.000000000000000000000000000001", None),
    ("exact4", "DECIMAL(10,2) ZEROFILL", "1.5", "1.50"),
    ("bit1", "BIT(1)", "b'1'", True),
    ("bit10", "BIT(10)", "b'1010101010'", 682),
    ("bit64", "BIT(64)", "0xffffffffffffffff", "18446744073709551615"),
    ("chars", "CHAR(10)", "'héé'", "héé"),
    ("varchars", "VARCHAR(300)", "'日本𝄞 '", "日本𝄞 "),
    ("empty", "VARCHAR(300)", "''", ""),
    ("texts", "MEDIUMTEXT", "REPEAT('t', 70000)", "t" * 70000),
    ("fixed", "BINARY(4)", "'ab'", b"ab\x00\x00"),
    ("fixed2", "BINARY(255)", "CONCAT('a', 0x0000, 'b')", b"a\x00\x00b".ljust(255, b"\x00")),
    ("bytes_", "VARBINARY(20)", "0xff00fe00", b"\xff\x00\xfe\x00"),
    ("blobs", "LONGBLOB", "REPEAT(0x00ff, 50000)", b"\x00\xff" * 50000),
    ("tiny_blob", "TINYBLOB", "0x0000", b"\x00\x00"),
    ("day", "DATE", "'1000-01-01'", "1000-01-01"),
    ("day0", "DATE", "'0000-00-00'", "0000-00-00"),
    ("day1", "DATE", "'2026-02-00'", "2026-02-00"),
    ("moment", "DATETIME", "'9999-12-31 23:59:59'", "9999-12-31 23:59:59"),
    ("moment0", "DATETIME(6)", "'0000-00-00'", "0000-00-00 00:00:00.000000"),
    ("moment1", "DATETIME(1)", "'2026-01-02 03:04:05.6'", "2026-01-02 03:04:05.6"),
    ("moment6", "DATETIME(6)", "'9999-12-31 23:59:59.999999'", "9999-12-31 23:59:59.999999"),
    ("stamp", "TIMESTAMP NULL", "'2026-03-29 02:30:00'", "2026-03-29 02:30:00"),
    ("stamp0", "TIMESTAMP NULL", "'0000-00-00'", "0000-00-00 00:00:00"),
    ("stamp3", "TIMESTAMP(3) NULL", "'2026-03-29 02:30:00.123'", "2026-03-29 02:30:00.123"),
    ("clock", "TIME", "'-838:59:59'", "-838:59:59"),
    ("clock2", "TIME(2)", "'-12:34:56.78'", "-12:34:56.78"),
    ("clock6", "TIME(6)", "'-00:00:00.000001'", "-00:00:00.000001"),
    ("clock7", "TIME(6)", "'838:59:58.999999'", "838:59:58.999999"),
    ("year_", "YEAR", "2155", 2155),
    ("year0", "YEAR", "0", 0),
    ("behind_year", "TINYINT UNSIGNED", "255", 255),
    ("one_of", "ENUM('a','b','ü')", "'ü'", "ü"),
    ("one_bad", "ENUM('a','b')", "'c'", ""),
    ("one_latin", "ENUM('ñ','ü') CHARACTER SET latin1", "'ñ'", "ñ"),
    ("some_of", "SET('x','y','z')", "'z,x'", "x,z"),
    ("none_of", "SET('x','y','z')", "''", ""),
    ("some_gbk", "SET('中','文') CHARACTER SET gbk", "'中,文'", "中,文"),
    ("doc", "JSON", """'{"a":[1,"é",null]}'""", '{"a":[1,"é",null]}'),
    ("place", "POINT", "POINT(1, 2)", WKB_POINT + struct.pack("<dd", 1, 2)),
    ("area", "GEOMETRY", "ST_GeomFromText('POINT(0 0)', 4326)", WKB_POINT + bytes(16)),
    ("inet_six", "INET6", "'2001:db8::'", "2001:db8::"),
    ("inet_mapped", "INET6", "'::ffff:1.2.3.4'", "::ffff:1.2.3.4"),
    ("inet_four", "INET4", "'1.2.3.0'", "1.2.3.0"),
    ("uuid_", "UUID", f"'{ID_1}'", ID_1),
    ("uuid0", "UUID", f"'{ID_4}'", ID_4),
    ("ascii_", "VARCHAR(9) CHARACTER SET ascii", "'abc'", "abc"),
    ("latin", "VARCHAR(9) CHARACTER SET latin1", "'ñ€'", "ñ€"),
    ("koi", "VARCHAR(9) CHARACTER SET koi8r", "'Привет'", "Привет"),
    ("greek", "VARCHAR(9) CHARACTER SET greek", "'αβ'", "αβ"),
    ("thai", "VARCHAR(9) CHARACTER SET tis620", "'ก'", "ก"),
    ("gbk", "CHAR(5) CHARACTER SET gbk", "'中文'", "中文"),
    ("big5", "VARCHAR(9) CHARACTER SET big5", "'中文'", "中文"),
    ("sjis", "VARCHAR(9) CHARACTER SET sjis", "'日本'", "日本"),
    ("cp932", "VARCHAR(9) CHARACTER SET cp932", "'日本①'", "日本①"),
    ("ujis", "VARCHAR(9) CHARACTER SET ujis", "'日本'", "日本"),
    ("korean", "VARCHAR(9) CHARACTER SET euckr", "'한국'", "한국"),
    ("ucs", "VARCHAR(9) CHARACTER SET ucs2", "'ü中'", "ü中"),
    ("u16", "VARCHAR(9) CHARACTER SET utf16", "'ü𝄞'", "ü𝄞"),
    ("u16le", "VARCHAR(9) CHARACTER SET utf16le", "'ü𝄞'", "ü𝄞"),
    ("u32", "VARCHAR(9) CHARACTER SET utf32", "'ü𝄞'", "ü𝄞"),
    ("uca", "VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_uca1400_ai_ci", "'üB'", "üB"),
    ("stored", "INT AS (plain * 0 + 4) STORED", "DEFAULT", 4),
    ("unseen", "INT INVISIBLE DEFAULT 3", "DEFAULT", 3),
]  # fmt: skip
MARIADB_ALONE = ("INET", "UUID", "uca1400")
DOCUMENTS = [
    """'{"a":[1,"é",null], "":{}, "bb":[], "q":"\\\\"\\\\n\\\\u0001/"}'""",
    "'[0, -1, 32767, 32768, -32769, 65536, 2147483648, -2147483649, 18446744073709551615]'",
    "'[1.0, -0.5, 1e20, 1.5e300, 0.1, 8.203701178775068e-9, -2.5e-7, 123456789.125, 1e15]'",
    "'[-0.0, 5e-324]'",
    "'true'", "'null'", "'\"text\"'", "'17'", "'-1.25'", "'{}'", "'[]'",
    "JSON_ARRAY(1.50, CAST('-12.345' AS DECIMAL(10,4)), x'00ff', POINT(1, 2))",
    "JSON_ARRAY(DATE'2026-01-02', TIME'-12:34:56.5', TIMESTAMP'2026-01-02 03:04:05.000006')",
    "JSON_OBJECT('many', JSON_ARRAY(REPEAT('x', 200), REPEAT('y', 70000), 65537, -1))",
    "CAST(CONCAT('[', REPEAT('{\"k\": 1234567, \"long key\": [true, 1]},', 3000), '0]') AS JSON)",
]  # fmt: skip
MYSQL_VALUES: list[tuple[str, str, str, Any]] = [
    *(v for v in VALUES if v[0] != "doc" and not any(name in v[1] for name in MARIADB_ALONE)),
    ("doc", "JSON", """'{"a":[1,"é",null]}'""", '{"a": [1, "é", null]}'),
    ("vec", "VECTOR(2)", "TO_VECTOR('[1,2]')", struct.pack("<ff", 1, 2)),
    ("behind_vector", "VARCHAR(9) CHARACTER SET latin1", "'ñ€'", "ñ€"),
    ("gb18", "VARCHAR(9) CHARACTER SET gb18030", "'中𝄞'", "中𝄞"),
    ("newer", "VARCHAR(9) COLLATE utf8mb4_0900_as_cs", "'ü'", "ü"),
    ("spelled", "VARCHAR(9) DEFAULT 'NULL'", "DEFAULT", "NULL"),
]


def expect_columns(values: list[tuple[str, str, str, Any]]) -> dict[str, Any]:
    """Return what becomes of each column."""
    return {
        name: expression if value is None else value for name, _, expression, value in values
    } | {"exact3": "-0." + "0" * 29 + "1"}


def test_the_list_has_each_column_once() -> None:
    assert len(expect_columns(VALUES)) == len(VALUES)


async def test_a_snapshot_and_the_binlog_agree_on_every_type(sql_server: SqlServer) -> None:
    values = MYSQL_VALUES if isinstance(sql_server, MySQL) else VALUES
    wanted = expect_columns(values)
    columns = ", ".join(f"`{name}` {kind}" for name, kind, _, _ in values)
    computed = "computed INT AS (plain * 2) VIRTUAL"
    with sql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        for table in ("first", "later"):
            cursor.execute(f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, {columns}, {computed})")
    _insert(sql_server, "first", values)
    target = MemoryTarget()
    async with following(sql_server, target) as running:
        await running.settle()
        _insert(sql_server, "later", values)
        await running.settle()
        for table in ("first", "later"):
            rows = plain(target.rows[table])
            assert rows[(1,)] == wanted, table
            assert {type(rows[(1,)][name]) for name in wanted} >= {bool, int, float, str, bytes}
            assert type(rows[(1,)]["bit1"]) is bool
            assert type(rows[(1,)]["flag"]) is int
            rows[(2,)].pop("spelled", None)
            assert rows[(2,)] == {"unseen": 3}, "what is NULL is no column"

        kept = [name for name, kind, _, _ in values if "AS" not in kind]
        everything = ", ".join(f"`{name}` = NULL" for name in kept)
        _run(sql_server, f"UPDATE shop.later SET {everything} WHERE id = 1")
        await running.settle()
        assert plain(target.rows["later"])[(1,)] == {}


async def test_documents_of_mysql_are_the_same_from_both(mysql: SqlServer) -> None:
    mysql.execute("CREATE TABLE shop.first (id INT PRIMARY KEY, doc JSON)")
    mysql.execute("CREATE TABLE shop.later LIKE shop.first")
    target = MemoryTarget()
    rows = ", ".join(f"({number}, {text})" for number, text in enumerate(DOCUMENTS))
    mysql.execute(f"INSERT INTO shop.first VALUES {rows}")
    async with following(mysql, target) as running:
        await running.settle()
        mysql.execute(f"INSERT INTO shop.later VALUES {rows}")
        await running.settle()
    assert len(target.rows["first"]) == len(DOCUMENTS)
    for key, columns in target.rows["first"].items():
        assert target.rows["later"][key] == columns


# The library says ``db`` where PyMySQL wants ``database``.
@pytest.mark.filterwarnings("ignore:'db' is deprecated:DeprecationWarning")
async def test_the_library_reads_the_same_from_the_binlog(mariadb: SqlServer) -> None:
    """mysql-replication is the judge where it loses nothing itself."""
    kept = ("tiny", "small_u", "medium", "plain_u", "big", "single", "wide2", "chars", "texts")
    kinds = {name: kind for name, kind, _, _ in VALUES}
    columns = ", ".join(f"{name} {kinds[name]}" for name in kept)
    mariadb.execute(f"CREATE TABLE shop.judged (id INT PRIMARY KEY, {columns})")
    [(gtids,)] = mariadb.rows("SELECT @@gtid_binlog_pos")
    target = MemoryTarget()
    async with following(mariadb, target) as running:
        await running.settle()
        values = ", ".join(expression for name, _, expression, _ in VALUES if name in kept)
        mariadb.execute(f"INSERT INTO shop.judged VALUES (1, {values})")
        await running.settle()
    stream = BinLogStreamReader(
        connection_settings={"host": HOST, "port": mariadb.port, "user": "root"},
        server_id=77,
        blocking=True,
        is_mariadb=True,
        auto_position=gtids,
        only_events=[WriteRowsEvent],
    )
    try:
        [row] = next(iter(stream)).rows
    finally:
        stream.close()
    assert plain(target.rows["judged"]) == {
        (row["values"].pop("id"),): row["values"],
    }


async def test_times_in_their_former_form(make_mariadb: MakeServer) -> None:
    server = make_mariadb("--mysql56-temporal-format=OFF")
    columns = "id INT PRIMARY KEY, d DATETIME, t TIME, s TIMESTAMP NULL"
    server.execute("CREATE DATABASE shop", f"CREATE TABLE shop.first ({columns})")
    server.execute(f"CREATE TABLE shop.later ({columns})")
    values = "'2026-01-02 03:04:05', '-12:34:56', '2026-03-29 02:30:00'"
    zeros = "'0000-00-00', '00:00:00', '0000-00-00'"
    target = MemoryTarget()
    _run(server, *(f"INSERT INTO shop.first VALUES (1, {values}), (2, {zeros})",))
    async with following(server, target) as running:
        await running.settle()
        _run(server, f"INSERT INTO shop.later VALUES (1, {values}), (2, {zeros})")
        await running.settle()
    assert plain(target.rows["first"]) == {
        (1,): {"d": "2026-01-02 03:04:05", "t": "-12:34:56", "s": "2026-03-29 02:30:00"},
        (2,): {"d": "0000-00-00 00:00:00", "t": "00:00:00", "s": "0000-00-00 00:00:00"},
    }
    assert target.rows["later"] == target.rows["first"]

    server.execute("CREATE TABLE shop.fine (id INT PRIMARY KEY, d DATETIME(3))")
    server.execute("INSERT INTO shop.fine VALUES (1, NOW(3))")
    async with following(server, target) as running:
        failed = await running.wait_until_state("shop.fine", "failed")
        assert "mysql56_temporal_format" in failed.reason + failed.remedy


KEYS: list[tuple[str, list[str], list[Any]]] = [
    ("INT", ["-5", "0", "7"], [-5, 0, 7]),
    ("BIGINT UNSIGNED", ["0", "9223372036854775807"], [0, 2**63 - 1]),
    ("DECIMAL(10,2)", ["-1.5", "0", "99.99"], ["-1.50", "0.00", "99.99"]),
    ("VARCHAR(20)", ["'a'", "'B'", "'é''`\\\\'", "'日'"], ["a", "B", "é'`\\", "日"]),
    ("VARCHAR(20) CHARACTER SET latin1", ["'a'", "'ü'"], ["a", "ü"]),
    ("BINARY(3)", ["'a'", "0x00ff"], [b"a\x00\x00", b"\x00\xff\x00"]),
    ("VARBINARY(9)", ["''", "0x00", "0xff"], [b"", b"\x00", b"\xff"]),
    ("DATE", ["'2026-01-01'", "'0000-00-00'"], ["2026-01-01", "0000-00-00"]),
    ("DATETIME(3)", ["'2026-01-01 00:00:00.5'"], ["2026-01-01 00:00:00.500"]),
    ("TIMESTAMP", ["'2026-01-01'", "'2026-07-01 01:00'"], []),
    ("TIME", ["'-10:00:00'", "'10:00:00'"], ["-10:00:00", "10:00:00"]),
    ("YEAR", ["1999", "2026"], [1999, 2026]),
    ("BIT(9)", ["1", "256"], [1, 256]),
    ("UUID", ["UUID()", "'6ccd780c-baba-1026-9564-5b8c656024db'"], []),
    ("INET6", ["'::1'", "'2001:db8::'"], ["::1", "2001:db8::"]),
]  # fmt: skip


@pytest.mark.parametrize("kind", KEYS, ids=lambda kind: kind[0])
async def test_a_key_of_a_type_is_walked_and_followed(
    mariadb: SqlServer, kind: tuple[str, list[str], list[Any]]
) -> None:
    declared, expressions, values = kind
    mariadb.execute(f"CREATE TABLE shop.a (k {declared}, n INT, PRIMARY KEY (k, n))")
    _run(mariadb, *(f"INSERT INTO shop.a VALUES ({e}, {n})" for e in expressions for n in (1, 2)))
    target = MemoryTarget()
    # Pages of one row: every key is a cursor, every key is looked up again by the sweep.
    async with following(mariadb, target, chunk_rows=1) as running:
        await running.settle()
        _check(target, values, len(expressions) * 2)
        _run(mariadb, "SET SESSION binlog_format = 'STATEMENT'", "DELETE FROM shop.a WHERE n = 2")
        await running.settle()
        _check(target, values, len(expressions))
        _run(mariadb, "DELETE FROM shop.a")
        await running.settle()
        assert target.rows["a"] == {}


def _check(target: MemoryTarget, values: list[Any], count: int) -> None:
    found = list(plain(target.rows["a"]))
    assert len(found) == count
    if values:
        assert {key[0] for key in found} == set(values)


def _insert(server: SqlServer, table: str, columns: list[tuple[str, str, str, Any]]) -> None:
    names = ", ".join(f"`{name}`" for name, _, _, _ in columns)
    values = ", ".join(expression for _, _, expression, _ in columns)
    _run(
        server,
        f"INSERT INTO shop.{table} (id, {names}) VALUES (1, {values})",
        f"INSERT INTO shop.{table} (id) VALUES (2)",
    )


def _run(server: SqlServer, *statements: str) -> None:
    """Run statements that strict modes refuse, such as zero dates."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        for statement in statements:
            cursor.execute(statement)
