"""Every type of value comes as the documentation says, the same from a copy as from the stream."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from demo.servers.postgres import PostgreSQL
from rowtide.connectors.sources.postgres.values import split_line
from rowtide.core.values.schema import BINARY, INTEGER, STRING
from rowtide.core.values.variant import Scalar
from tests.connectors.memory_target import MemoryTarget
from tests.connectors.postgres.following import following, plain

TEXT = "a tab\t, a line\n, a return\r, a \\ and \\N, 'quotes', \"more\", \b\f\v, 字 😀"

VALUES: Mapping[str, tuple[str, str, Scalar]] = {
    # Column: its type, a literal, the value in rowtide.
    "flag": ("boolean", "true", True),
    "no": ("boolean", "false", False),
    "small": ("smallint", "-32768", -32768),
    "middle": ("int", "2147483647", 2147483647),
    "big": ("bigint", "-9223372036854775808", -(2**63)),
    "oid": ("oid", "4294967295", 4294967295),
    "exact": ("numeric(12,4)", "-1234.5000", "-1234.5000"),
    "wide": ("numeric", "123456789012345678901234567890.1", "123456789012345678901234567890.1"),
    "nan": ("numeric", "'NaN'", "NaN"),
    "real": ("real", "0.1", 0.10000000149011612),
    "double": ("double precision", "0.1", 0.1),
    "tiny": ("double precision", "5e-324", 5e-324),
    "largest": ("double precision", "1.7976931348623157e308", 1.7976931348623157e308),
    "no_number": ("double precision", "'NaN'", "NaN"),
    "infinite": ("double precision", "'Infinity'", "Infinity"),
    "least": ("double precision", "'-Infinity'", "-Infinity"),
    "real_no_number": ("real", "'nan'", "NaN"),
    "real_infinite": ("real", "'inf'", "Infinity"),
    "real_least": ("real", "'-inf'", "-Infinity"),
    "cash": ("numeric(10,2)", "0", "0.00"),
    "text": ("text", "E'" + TEXT.replace("\\", "\\\\").replace("'", "\\'") + "'", TEXT),
    "empty": ("text", "''", ""),
    "varchar": ("varchar(5)", "'ab '", "ab "),
    "char": ("char(5)", "'ab'", "ab   "),
    "bytes": ("bytea", r"'\x005c0d0aff'", b"\x00\x5c\r\n\xff"),
    "no_bytes": ("bytea", r"'\x'", b""),
    "date": ("date", "'2026-02-03'", "2026-02-03"),
    "early": ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    "never": ("date", "'infinity'", "infinity"),
    "time": ("time", "'04:05:06.789'", "04:05:06.789"),
    "timetz": ("timetz", "'04:05:06+02'", "04:05:06+02"),
    "stamp": ("timestamp", "'2026-02-03 04:05:06.789'", "2026-02-03 04:05:06.789"),
    "zoned": ("timestamptz", "'2026-02-03 04:05:06+02'", "2026-02-03 02:05:06+00"),
    "span": ("interval", "'1 year 2 days 3:04:05.6'", "P1Y2DT3H4M5.6S"),
    "uuid": (
        "uuid",
        "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'",
        "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    ),
    "json": ("json", """'{"b":  1, "a": [null]}'""", """{"b":  1, "a": [null]}"""),
    "jsonb": ("jsonb", """'{"b":  1, "a": [null]}'""", """{"a": [null], "b": 1}"""),
    "ints": ("int[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    "texts": ("text[]", """'{{"a b",c},{d,"e\\"f"}}'""", r"""{{"a b",c},{d,"e\"f"}}"""),
    "mood": ("shop.mood", "'happy'", "happy"),
    "inet": ("inet", "'192.168.0.1/24'", "192.168.0.1/24"),
    "cidr": ("cidr", "'2001:db8::/32'", "2001:db8::/32"),
    "mac": ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03"),
    "bits": ("bit varying(8)", "B'10110'", "10110"),
    "point": ("point", "'(1.5,2)'", "(1.5,2)"),
    "range": ("int4range", "'[1,5]'", "[1,6)"),
    "pair": ("shop.pair", "'(1,x)'", "(1,x)"),
    "count": ("shop.count_of", "42", 42),
    "sure": ("shop.sure", "true", True),
    "nothing": ("text", "NULL", ""),
}
TYPES = (
    "CREATE TYPE shop.mood AS ENUM ('sad', 'happy')",
    "CREATE TYPE shop.pair AS (n int, t text)",
    "CREATE DOMAIN shop.counted AS bigint CHECK (VALUE > 0)",
    "CREATE DOMAIN shop.count_of AS shop.counted",
    "CREATE DOMAIN shop.sure AS boolean",
)


@pytest.mark.system
async def test_values_of_every_type(postgres: PostgreSQL) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _, _) in VALUES.items())
    literals = ", ".join(literal for _, literal, _ in VALUES.values())
    twice = ", ".join(f'"{name}" = {literal}' for name, (_, literal, _) in VALUES.items())
    names = ", ".join(f'"{name}"' for name in VALUES)
    postgres.execute(
        *TYPES,
        f"CREATE TABLE shop.a (id int PRIMARY KEY, {columns}, sum int GENERATED ALWAYS AS (1)"
        " STORED)",
        "ALTER DATABASE shop SET DateStyle = 'German'",
        "ALTER DATABASE shop SET TimeZone = 'Asia/Tokyo'",
        "ALTER DATABASE shop SET bytea_output = 'escape'",
        "ALTER DATABASE shop SET extra_float_digits = -5",
        f"INSERT INTO shop.a (id, {names}) VALUES (1, {literals})",
        "INSERT INTO shop.a (id) VALUES (2)",
    )
    target = MemoryTarget()
    async with following(postgres, target) as running:
        await running.settle()
        postgres.execute(
            f"INSERT INTO shop.a (id, {names}) VALUES (3, {literals})",
            "INSERT INTO shop.a (id) VALUES (4)",
            f"UPDATE shop.a SET {twice} WHERE id = 2",
        )
        await running.settle()
    wanted = {name: value for name, (_, _, value) in VALUES.items() if name != "nothing"}
    wanted["sum"] = 1  # A stored generated column is in the stream.
    rows = plain(target.rows["a"])
    for key in (1, 3, 2):
        assert rows[key] == wanted
        assert {name: type(value) for name, value in rows[key].items()} == {
            name: type(value) for name, value in wanted.items()
        }
    assert rows[4] == {"sum": 1}


KEYS: Mapping[str, tuple[int, str, str, Scalar, Scalar]] = {
    # Type: in rowtide; two literals and what they are as keys.
    "bigint": (INTEGER, "-5", "7", -5, 7),
    "boolean": (INTEGER, "false", "true", 0, 1),
    "text": (STRING, "E'it''s \\\\ \\t'", "'字'", "it's \\ \t", "字"),
    "char(3)": (STRING, "'a'", "'abc'", "a  ", "abc"),
    "bytea": (BINARY, r"'\x00'", r"'\xff5c'", b"\x00", b"\xff\\"),
    "uuid": (
        STRING,
        "'00000000-0000-0000-0000-000000000001'",
        "'00000000-0000-0000-0000-000000000002'",
        "00000000-0000-0000-0000-000000000001",
        "00000000-0000-0000-0000-000000000002",
    ),
    "real": (STRING, "0.5", "'Infinity'", "0.5", "Infinity"),
    "numeric": (STRING, "1.50", "10", "1.50", "10"),
    "timestamptz": (
        STRING,
        "'2026-01-01 00:00+01'",
        "'2026-01-02'",
        "2025-12-31 23:00:00+00",
        "2026-01-02 00:00:00+00",
    ),
    "date": (STRING, "'2026-01-01'", "'2026-01-02'", "2026-01-01", "2026-01-02"),
    "shop.mood": (STRING, "'sad'", "'happy'", "sad", "happy"),
    "inet": (STRING, "'10.0.0.1'", "'10.0.0.2/8'", "10.0.0.1", "10.0.0.2/8"),
}


@pytest.mark.system
async def test_keys_of_many_types(postgres: PostgreSQL) -> None:
    """They are copied in chunks of one row, moved, deleted, and looked for after a loss."""
    postgres.execute(*TYPES, "SET TimeZone = 'UTC'")
    names = {kind: f"t{number}" for number, kind in enumerate(KEYS)}
    for kind, (_, first, second, _, _) in KEYS.items():
        table = f"shop.{names[kind]}"
        postgres.execute(
            f"CREATE TABLE {table} (k {kind}, part int, v int, PRIMARY KEY (part, k))",
            f"INSERT INTO {table} VALUES ({first}, 1, 1), ({second}, 1, 2), ({first}, 2, 3)",
        )
    target = MemoryTarget()
    async with following(postgres, target, chunk_rows=1) as running:
        await running.settle()
        for kind, (stored, _, second, one, two) in KEYS.items():
            assert [part.type for part in target.shapes[names[kind]].key] == [INTEGER, stored]
            assert plain(target.rows[names[kind]]) == {
                (1, one): {"v": 1},
                (1, two): {"v": 2},
                (2, one): {"v": 3},
            }
            postgres.execute(f"UPDATE shop.{names[kind]} SET k = {second} WHERE part = 2")
        await running.settle()
    postgres.drop_slots()
    for kind, (_, first, _, _, _) in KEYS.items():
        postgres.execute(f"DELETE FROM shop.{names[kind]} WHERE k = {first}")
    async with following(postgres, target) as running:
        await running.settle()
    for kind, (_, _, _, _, two) in KEYS.items():
        assert plain(target.rows[names[kind]]) == {(1, two): {"v": 2}, (2, two): {"v": 3}}


def test_a_copied_line_is_read() -> None:
    line = rb"1	\N		a\\b\n\t\r\b\f\v\\N	\\x00ff" + b"\n"
    assert split_line(line) == [
        *(b"1", None, b"", b"a\\b\n\t\r\b\f\v\\N", b"\\x00ff"),
    ]
    assert split_line(b"1\tx\n") == [b"1", b"x"]
