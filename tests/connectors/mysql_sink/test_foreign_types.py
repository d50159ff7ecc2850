"""Columns that have the source's types: ``verify`` compares values as the target stores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.mysql.sink import MysqlSink
from rowtide.connectors.verify.comparison import row_bytes, row_checksum, unequal
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.mysql_sink.sinks import open_sink
from tests.connectors.row_histories import put, row_key, shape

pytestmark = pytest.mark.system

KEY = (KeyColumn("id", INTEGER),)
STAMP = 1_700_000_000_000_000


class Typed(NamedTuple):
    """A column, values that rowtide has for it, and another one, as SQL, which is not the first."""

    type: str
    values: list[Scalar]
    other: str


TYPES = [
    Typed("DECIMAL(10,2)", ["12.50", "12.5", "-0.00", "0", "-99999999.99", 7, 1.25], "12.51"),
    Typed("DECIMAL(10,0)", ["12", "-7", 12, "012"], "13"),
    Typed(
        "DECIMAL(65,30)",
        ["1." + "0" * 29 + "1", "1" * 35 + ".5", "-0." + "3" * 30],
        "1." + "0" * 29 + "2",
    ),
    Typed("DECIMAL(8,3) UNSIGNED ZEROFILL", ["1.5", "0.001"], "1.501"),
    Typed("FLOAT", [0.10000000149011612, 0.1, "0.1", 16777217, 1e38, -0.0, 3], "0.10000001"),
    Typed("FLOAT(7,3)", [1.5, 1.2345, "1.2345"], "1.501"),
    Typed("DOUBLE UNSIGNED", [0.1, 1e300, 5e-324], "0.2"),
    Typed("DOUBLE(12,3)", [1.5, 0.1235, 1.2344999], "1.501"),
    Typed("TINYINT", [-128, 127, True, "5"], "1"),
    Typed("TINYINT UNSIGNED", [0, 255], "1"),
    Typed("SMALLINT", [-32768, 32767], "1"),
    Typed("MEDIUMINT UNSIGNED ZEROFILL", [7, 16777215], "8"),
    Typed("INT", [-(2**31), 2**31 - 1, "17", 2.0], "1"),
    Typed(
        "BIGINT UNSIGNED",
        ["18446744073709551615", "9223372036854775808", 2**63 - 1, 0],
        "18446744073709551614",
    ),
    Typed("YEAR", [2024, 1901, 2155, "1999", 0], "2025"),
    Typed("DATE", ["2024-02-29", "0001-01-01", "9999-12-31", "0000-00-00"], "'2024-02-28'"),
    Typed("DATETIME", ["2024-02-29 23:59:59", "2024-02-29", "0000-00-00 00:00:00"], "'2024-02-28'"),
    Typed(
        "DATETIME(3)",
        ["2024-02-29 23:59:59.120", "2024-02-29 23:59:59.12", "2024-02-29 23:59:59.1239"],
        "'2024-02-29 23:59:59.121'",
    ),
    Typed(
        "DATETIME(6)",
        ["2024-02-29 23:59:59.000001", "2024-02-29T01:02:03", "0000-00-00 00:00:00.000000"],
        "'2024-02-29 23:59:59.000002'",
    ),
    Typed(
        "TIMESTAMP NULL", ["2024-03-31 02:30:00", "1970-01-01 00:00:01"], "'2024-03-31 02:30:01'"
    ),
    Typed(
        "TIMESTAMP(6) NULL",
        ["2024-10-27 02:30:00.123456", "2024-10-27 02:30:00", "0000-00-00 00:00:00.000000"],
        "'2024-10-27 02:30:00.123457'",
    ),
    Typed("TIME", ["838:59:59", "-838:59:59", "-00:00:01", "00:00:00", "-00:00:00"], "'-00:00:02'"),
    Typed("TIME(2)", ["-01:02:03.45", "-00:00:00.01", "01:02:03.4", "1:2:3"], "'-01:02:03.46'"),
    Typed("TIME(6)", ["-838:59:59.000000", "00:00:00.000001"], "'-838:59:58.999999'"),
    Typed("BIT(1)", [True, False, 1, 0], "b'0'"),
    Typed("BIT(7)", [5, "5", 127], "b'1'"),
    Typed("BIT(64)", [5, "18446744073709551615", "9223372036854775808", 2**63 - 1], "4"),
    Typed("ENUM('a','B','c d','1')", ["a", "A", "b", "c d", "1"], "'B'"),
    Typed("SET('a','B','c')", ["a,B", "B,a", "c", "", "a,a"], "'a,c'"),
    Typed("CHAR(5)", ["ab", "ab  ", "", "ü", 12, 1.5, True], "'ac'"),
    Typed("CHAR(5) CHARACTER SET latin1", ["ü", "ab "], "'u'"),
    Typed("VARCHAR(5)", ["ab", "ab ", "ab        ", "", 12, b"ab", True], "'ab '"),
    Typed("VARCHAR(5) CHARACTER SET utf16", ["ü", "x "], "'u'"),
    Typed("TINYTEXT", ["x", "X ", 2.5], "'X'"),
    Typed("TEXT CHARACTER SET latin1", ["ü", "x "], "'u'"),
    Typed("MEDIUMTEXT", ["x", "😀"], "'X'"),
    Typed("BINARY(4)", [b"a", b"a\x00", b"", b"abcd", "ü", 7], "'b'"),
    Typed("VARBINARY(4)", [b"a", b"a\x00", b"", "ü", 7], "x'6100'"),
    Typed("TINYBLOB", [b"a", b"a\x00", "ü"], "x'6100'"),
    Typed("BLOB", [b"\xff", "x"], "x'fe'"),
    Typed("JSON", ['{"b": 1, "a": [1.0, 2]}', "[]", "null", '"x"', "1e2"], "'{}'"),
    Typed("BOOLEAN", [True, False], "0"),
    Typed("BIGINT", [-(2**63), 2**63 - 1, True], "1"),
    Typed("DOUBLE", [0.1, -0.0, 7], "0.2"),
    Typed("LONGTEXT", ["x ", 1e16, 7], "'y'"),
    Typed("LONGBLOB", [b"\xff", "x", 7], "x'fe'"),
]
MARIADB_ONLY = [
    Typed(
        "UUID", ["123e4567-e89b-12d3-a456-426655440000"], "'123e4567-e89b-12d3-a456-426655440001'"
    ),
    Typed("INET6", ["::1", "0:0::1", "::ffff:1.2.3.4"], "'::2'"),
    Typed("VARCHAR(9) COMPRESSED", ["x ", "y"], "'x'"),
]


@pytest.fixture
def is_maria(sql_server: SqlServer) -> bool:
    return "MariaDB" in str(sql_server.rows("SELECT VERSION()"))


def make(server: SqlServer, database: str, types: list[Typed]) -> None:
    columns = ", ".join(f"c{at} {typed.type}" for at, typed in enumerate(types))
    server.execute(f"CREATE TABLE {database}.things (id BIGINT PRIMARY KEY, {columns})")


async def differing(
    sink: MysqlSink, rows: Mapping[int, Mapping[str, Scalar]]
) -> dict[int, tuple[str, ...]]:
    """Return by row the columns that ``verify`` would call different."""
    held = {row.key_bytes: row.columns for row in await sink.read_rows(b"", b"", limit=9999)}
    by_key = {row_key(KEY, [number])[1]: number for number in rows}
    expected = await sink.convert_rows({key: rows[number] for key, number in by_key.items()})
    assert list(expected) == list(by_key)
    for key, columns in held.items():
        row_checksum(key, columns)  # A great integer ended the comparison here.
    return {
        number: unequal(expected[key], held.get(key, {}))
        for key, number in by_key.items()
        if key not in held or row_bytes(expected[key]) != row_bytes(held[key])
    }


async def test_what_the_target_stores_of_a_value_is_equal_and_all_else_is_not(
    sql_server: SqlServer, database: str, is_maria: bool
) -> None:
    types = TYPES + MARIADB_ONLY * is_maria
    make(sql_server, database, types)
    count = max(len(typed.values) for typed in types)
    rows: dict[int, dict[str, Scalar]] = {
        number: {
            f"c{at}": typed.values[number]
            for at, typed in enumerate(types)
            if number < len(typed.values)
        }
        for number in range(count)
    }
    rows[count] = {}  # Every column is NULL.
    async with open_sink(sql_server, database, shape(*KEY)) as sink:
        batch = [put(STAMP, [number], columns, KEY) for number, columns in rows.items()]
        assert await sink.apply(SinkBatch("things", "s", batch)) == []
        assert await differing(sink, rows) == {}
        for at, typed in enumerate(types):
            sql_server.execute(f"UPDATE {database}.things SET c{at} = {typed.other} WHERE id = 0")
            found = await differing(sink, rows)
            assert found == {0: tuple(sorted(f"c{n}" for n in range(at + 1)))}, typed.type
        sql_server.execute(f"UPDATE {database}.things SET c0 = NULL WHERE id = 1")
        assert (await differing(sink, rows))[1] == ("c0",)
    assert sql_server.rows(f"SHOW TABLES IN {database} LIKE 'rowtide%'") == []


async def test_a_value_that_the_target_refuses_is_told_as_missing(
    sql_server: SqlServer, database: str
) -> None:
    sql_server.execute(
        f"CREATE TABLE {database}.things (id BIGINT PRIMARY KEY, d DECIMAL(4,2), t DATETIME(3))"
    )
    rows: dict[int, dict[str, Scalar]] = {
        1: {"d": "1.50", "t": "2024-01-01"},
        2: {"d": "1000", "t": "2024-01-01"},
        3: {"d": "1.50", "t": "never", "more": 1},
        4: {"d": "x"},
    }
    async with open_sink(sql_server, database, shape(*KEY)) as sink:
        batch = [put(STAMP, [number], columns, KEY) for number, columns in rows.items()]
        refused = await sink.apply(SinkBatch("things", "s", batch))
        assert [refusal.row.key[0][1] for refusal in refused] == [2, 3, 4]
        assert sorted(await differing(sink, rows)) == [2, 3, 4]


@pytest.mark.parametrize("primary_key", ["native", "hashed"])
async def test_any_key_and_any_name_of_a_column_can_be_compared(
    sql_server: SqlServer, database: str, is_maria: bool, primary_key: str
) -> None:
    key = (KeyColumn("name", STRING), KeyColumn("`n", INTEGER))
    async with open_sink(sql_server, database, shape(*key), primary_key=primary_key) as sink:
        sql_server.execute(f"ALTER TABLE {database}.things ADD `a``ä b` DECIMAL(9,3)")
        sql_server.execute(
            f"ALTER TABLE {database}.things ADD g INT AS (`n` + 1)".replace("`n`", "```n`")
        )
    async with open_sink(sql_server, database, shape(*key), primary_key=primary_key) as sink:
        keys: list[list[Scalar]] = [["a", 1], ["A", 1], ["a ", -7], ["", 0], ["😀'\\", 2]]
        rows: dict[bytes, dict[str, Scalar]] = {
            row_key(key, values)[1]: {"a`ä b": f"{at}.5", "x": at} for at, values in enumerate(keys)
        }
        batch = [put(STAMP, v, {"a`ä b": f"{at}.5", "x": at}, key) for at, v in enumerate(keys)]
        assert await sink.apply(SinkBatch("things", "s", batch)) == []
        held = {row.key_bytes: row.columns for row in await sink.read_rows(b"", b"", limit=99)}
        assert held == await sink.convert_rows(rows)


async def test_a_partitioned_target_can_be_compared(sql_server: SqlServer, database: str) -> None:
    sql_server.execute(
        f"CREATE TABLE {database}.things (id BIGINT PRIMARY KEY, d DECIMAL(4,2))"
        " PARTITION BY HASH (id) PARTITIONS 3"
    )
    rows: dict[int, dict[str, Scalar]] = {number: {"d": f"{number}.5"} for number in range(9)}
    async with open_sink(sql_server, database, shape(*KEY)) as sink:
        batch = [put(STAMP, [number], columns, KEY) for number, columns in rows.items()]
        assert await sink.apply(SinkBatch("things", "s", batch)) == []
        assert await differing(sink, rows) == {}


async def test_a_user_without_temporary_tables_is_told_what_to_grant(
    sql_server: SqlServer, database: str
) -> None:
    make(sql_server, database, [Typed("DECIMAL(4,2)", [], "")])
    user = f"u{database[-8:]}"
    sql_server.execute(
        f"CREATE USER {user} IDENTIFIED BY ''",
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX"
        f" ON {database}.* TO {user}",
    )
    try:
        async with open_sink(sql_server, database, shape(*KEY), user=user) as sink:
            with pytest.raises(Rejected) as refused:
                await sink.convert_rows({row_key(KEY, [1])[1]: {"c0": "1.5"}})
            assert f"GRANT CREATE TEMPORARY TABLES ON `{database}`.*" in refused.value.message
            assert await sink.convert_rows({b"x": {"other": 1}}) == {b"x": {"other": 1}}
    finally:
        sql_server.execute(f"DROP USER {user}")


async def test_declared_columns_are_made_so_and_stay(sql_server: SqlServer, database: str) -> None:
    types = {
        "amount": "DECIMAL(10,2)",
        "born": "date",
        "at": "DATETIME (3)",
        "state": "ENUM('new','old')",
        "n": "BIGINT UNSIGNED",
        "small": "TINYINT",
        "flag": "BOOLEAN",
        "name": "VARCHAR(5) CHARACTER SET latin1",
        "a`b": "TIME(2)",
    }
    rows: dict[int, dict[str, Scalar]] = {
        1: {"amount": "1.5", "born": "2024-02-29", "at": "2024-02-29 01:02:03.5", "state": "new"},
        2: {"n": "18446744073709551615", "small": 5, "flag": True, "name": "ü", "a`b": "-00:00:01"},
        3: {"amount": 3, "n": 1, "flag": 0, "other": "x"},
    }
    late: list[dict[str, Scalar]] = [{"small": "x"}, {"flag": "never"}, {"name": "too long"}]
    for _ in range(2):  # The second time the columns are there.
        async with open_sink(sql_server, database, shape(*KEY), columns=types) as sink:
            batch = [put(STAMP, [number], columns, KEY) for number, columns in rows.items()]
            assert await sink.apply(SinkBatch("things", "s", batch)) == []
            batch = [put(STAMP, [9 + at], columns, KEY) for at, columns in enumerate(late)]
            assert len(await sink.apply(SinkBatch("things", "s", batch))) == len(late)
            assert await differing(sink, rows) == {}
    shown = sql_server.rows(f"SHOW COLUMNS FROM {database}.things")
    made = {str(name): str(kind).removesuffix("(20)") for name, kind, *_ in shown}
    assert {name: made[name] for name in ("amount", "born", "at", "state", "a`b")} == {
        "amount": "decimal(10,2)",
        "born": "date",
        "at": "datetime(3)",
        "state": "enum('new','old')",
        "a`b": "time(2)",
    }
    assert made["flag"] == "tinyint(1)"
    assert made["other"] == "longtext"
    with pytest.raises(Rejected, match="`columns` has id, of the key"):
        async with open_sink(sql_server, database, shape(*KEY), columns={"id": "INT"}):
            pass


@pytest.mark.parametrize(
    "text",
    ["", "NUMBER", "DECIMAL(10", "DECIMAL(10,2) NOT NULL", "INT; DROP TABLE t", "ENUM('a'b')"],
)
def test_what_is_no_type_is_refused(text: str) -> None:
    where = {"host": "h", "user": "u", "database": "d"}
    fields = Fields({"kind": "mysql", **where, "columns": {"a": text}}, "sink")
    with pytest.raises(SettingsRefused, match="must be a type such as"):
        make_sink(fields, ConnectorContext("test", ""))
