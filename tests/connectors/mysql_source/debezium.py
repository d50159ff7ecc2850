"""Debezium's MariaDB connector in Kafka Connect, and what it says in rowtide's words.

``COLUMNS`` has each common type: how its values are made, and how Debezium's become rowtide's.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from struct import pack, unpack
from typing import Any, NamedTuple

from demo.servers.connect import Connect
from demo.servers.sql_server import HOST, SqlServer
from rowtide.core.values import key, variant
from rowtide.core.values.variant import Scalar
from tests.connectors.kafka.sinks import TopicRecord

__all__ = [
    "COLUMNS",
    "KEY",
    "Change",
    "Shown",
    "changes_of",
    "connect_to",
    "key_bytes",
    "show_values",
    "state_of",
    "topic_of",
]

PREFIX = "debezium"
KEY = ("number", "name")
JSON = "org.apache.kafka.connect.json.JsonConverter"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
BELOW_2_63 = range(2**63)
UNSIGNED_64 = (0, 2**63 - 1, 2**63, 2**64 - 1)

Shown = Mapping[str, str]
"""A row's columns as texts that differ wherever the values do: True is not 1, 1 not 1.0."""
Make = Callable[[random.Random], Any]


class Change(NamedTuple):
    """What became of a row: ``put`` and ``update`` with the columns they set, None for NULL."""

    kind: str
    columns: Mapping[str, str | None]


class Column(NamedTuple):
    """Its type in MariaDB, how a value is made, and what Debezium's is in rowtide."""

    type: str
    make: Make
    mapped: Callable[[Any], Scalar]


def _same(value: Any) -> Any:
    return value


def _wide(value: int) -> Scalar:
    """Return an unsigned number: what exceeds rowtide's integers is its digits."""
    return value if value in BELOW_2_63 else str(value)


def _single(value: float) -> float:
    """Return a FLOAT, which Debezium shows as its shortest text, with the bits it has."""
    found: float = unpack("<f", pack("<f", value))[0]
    return found


def _bytes(value: str) -> bytes:
    return base64.b64decode(value)


def _member(value: str) -> str:
    """Return an ENUM's member: Debezium writes a backslash before a comma that is part of it."""
    return value.replace("\\,", ",")


def _bits(value: str) -> Scalar:
    return _wide(int.from_bytes(_bytes(value), "little"))


def _day(value: int) -> str:
    return (EPOCH + timedelta(days=value)).date().isoformat()


def _moment(unit_us: int, digits: int) -> Callable[[int], str]:
    return lambda value: _with_fraction(EPOCH + timedelta(microseconds=value * unit_us), digits)


def _stamp(digits: int) -> Callable[[str], str]:
    return lambda value: _with_fraction(
        datetime.fromisoformat(value).astimezone(UTC).replace(tzinfo=None), digits
    )


def _with_fraction(moment: datetime, digits: int) -> str:
    text = moment.isoformat(" ", "microseconds")
    return text[: 20 + digits] if digits else text[:19]


def _clock(digits: int) -> Callable[[int], str]:
    def format_time(value: int) -> str:
        seconds, us = divmod(abs(value), 10**6)
        text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        fraction = f".{us:06}"[: digits + 1] if digits else ""
        return ("-" if value < 0 else "") + text + fraction

    return format_time


def _decimal(digits: int) -> Callable[[str], str]:
    return lambda value: f"{Decimal(value):.{digits}f}"


def _one_of(*values: Any) -> Make:
    return lambda chance: chance.choice(values)


def _integer(low: int, high: int) -> Make:
    return lambda chance: chance.choice((low, high, 0, chance.randint(low, high)))


def _number(chance: random.Random) -> float:
    return chance.choice((0.0, 0.1, -1.5e-300, 1.7e308, chance.uniform(-1e9, 1e9)))


def _small_number(chance: random.Random) -> float:
    return chance.choice((0.0, 0.1, -3.4e38, 1.2e-38, _single(chance.uniform(-1e4, 1e4))))


def _text(chance: random.Random) -> str:
    return "".join(chance.choices("aÄß日本𝄞😀 '\\\"\n\t\x00", k=chance.randint(0, 12)))


def _octets(longest: int) -> Make:
    return lambda chance: chance.choice(
        (b"", b"\x00", chance.randbytes(chance.randint(0, longest)))
    )


def _time_text(first: str, last: str, digits: int) -> Make:
    begin, end = datetime.fromisoformat(first), datetime.fromisoformat(last)
    seconds = int((end - begin).total_seconds())

    def make(chance: random.Random) -> str:
        at = chance.choice((0, seconds, chance.randint(0, seconds)))
        moment = begin + timedelta(seconds=at)
        fraction = f".{chance.randrange(10**digits):0{digits}}" if digits else ""
        return moment.isoformat(" ", "seconds") + fraction

    return make


def _clock_text(digits: int) -> Make:
    def make(chance: random.Random) -> str:
        sign = chance.choice(("", "-"))
        hours = chance.choice((0, 23, 24, 837))
        fraction = f".{chance.randrange(10**digits):0{digits}}" if digits else ""
        return f"{sign}{hours:02}:{chance.randrange(60):02}:{chance.randrange(60):02}{fraction}"

    return make


COLUMNS: Mapping[str, Column] = {
    "tiny": Column("TINYINT", _integer(-(2**7), 2**7 - 1), _same),
    "tiny_u": Column("TINYINT UNSIGNED", _integer(0, 2**8 - 1), _same),
    "flag": Column("BOOLEAN", _one_of(0, 1), _same),
    "small": Column("SMALLINT", _integer(-(2**15), 2**15 - 1), _same),
    "small_u": Column("SMALLINT UNSIGNED", _integer(0, 2**16 - 1), _same),
    "medium": Column("MEDIUMINT", _integer(-(2**23), 2**23 - 1), _same),
    "medium_u": Column("MEDIUMINT UNSIGNED", _integer(0, 2**24 - 1), _same),
    "plain": Column("INT", _integer(-(2**31), 2**31 - 1), _same),
    "plain_u": Column("INT UNSIGNED", _integer(0, 2**32 - 1), _same),
    "big": Column("BIGINT", _integer(-(2**63), 2**63 - 1), _same),
    "big_u": Column("BIGINT UNSIGNED", _one_of(*UNSIGNED_64), _wide),
    "exact": Column(
        "DECIMAL(30,10)", _one_of("-0.0000000001", "99999999999999999999.9"), _decimal(10)
    ),
    "exact0": Column("DECIMAL(5,0)", _integer(-99999, 99999), _decimal(0)),
    "single": Column("FLOAT", _small_number, _single),
    "wide": Column("DOUBLE", _number, float),
    "day": Column("DATE", _time_text("0001-01-01", "9999-12-31", 0), _day),
    "moment": Column("DATETIME", _time_text("0001-01-01", "9999-12-31", 0), _moment(1000, 0)),
    "moment3": Column("DATETIME(3)", _time_text("1000-01-01", "9999-12-31", 3), _moment(1000, 3)),
    "moment6": Column("DATETIME(6)", _time_text("1000-01-01", "9999-12-31", 6), _moment(1, 6)),
    "stamp": Column(
        "TIMESTAMP NULL", _time_text("1970-01-01 00:00:01", "2038-01-19", 0), _stamp(0)
    ),
    "stamp6": Column("TIMESTAMP(6) NULL", _time_text("1970-01-02", "2038-01-19", 6), _stamp(6)),
    "clock": Column("TIME", _clock_text(0), _clock(0)),
    "clock6": Column("TIME(6)", _clock_text(6), _clock(6)),
    "year_": Column("YEAR", _one_of(1901, 1970, 2026, 2155), _same),
    "texts": Column("VARCHAR(40) CHARACTER SET utf8mb4", _text, _same),
    "chars": Column("CHAR(9)", _one_of("", "fox", "FOX", "日本"), _same),
    "latin": Column("VARCHAR(9) CHARACTER SET latin1", _one_of("", "ñ€", "N€"), _same),
    "long_": Column("TEXT", lambda chance: _text(chance) * 40, _same),
    "fixed": Column("BINARY(4)", _octets(4), _bytes),
    "bytes_": Column("VARBINARY(20)", _octets(20), _bytes),
    "blobs": Column("BLOB", _octets(400), _bytes),
    "doc": Column("JSON", _one_of('{"a": [1, "é", null]}', "[]", '"😀"', "1.50"), _same),
    "one_of": Column("ENUM('a','b','ü,x')", _one_of("a", "b", "ü,x"), _member),
    "some_of": Column("SET('x','y','ü')", _one_of("", "x", "x,ü", "ü,y,x"), _same),
    "bit1": Column("BIT(1)", _one_of(0, 1), _same),
    "bit10": Column("BIT(10)", _integer(0, 2**10 - 1), _bits),
    "bit64": Column("BIT(64)", _one_of(*UNSIGNED_64), _bits),
}


def connect_to(
    server: SqlServer, folder: Path, cache_dir: Path, *, bootstrap: str, table: str
) -> Connect:
    """Return a worker, not started, whose connector follows ``table`` of the database ``shop``."""
    folder.mkdir()
    connector = {
        "name": "judge",
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": HOST,
        "database.port": str(server.port),
        "database.user": "root",
        "database.password": "",
        "database.ssl.mode": "disable",
        "database.server.id": "4711",
        "topic.prefix": PREFIX,
        "database.include.list": "shop",
        "table.include.list": f"shop.{table}",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder.resolve() / "history"),
        "decimal.handling.mode": "string",
        "bigint.unsigned.handling.mode": "precise",
        "enable.time.adjuster": "false",  # Otherwise the year 1 is reported as 2001.
        "poll.interval.ms": "50",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
        "value.converter.decimal.format": "NUMERIC",
    }
    return Connect(
        folder, cache_dir, plugin="debezium-mariadb", bootstrap=bootstrap, connector=connector
    )


def topic_of(table: str) -> str:
    """Return the topic that the connector writes."""
    return f"{PREFIX}.shop.{table}"


def key_bytes(values: Sequence[Scalar]) -> bytes:
    """Return a key as rowtide has it."""
    return key.encode([variant.encode(value) for value in values])


def show_values(columns: Mapping[str, Scalar]) -> Shown:
    """Return columns as they are compared."""
    return {name: repr(value) for name, value in columns.items()}


def changes_of(records: Sequence[TopicRecord]) -> list[tuple[bytes, Change]]:
    """Return what the records of a topic say, but for tombstones, by the keys."""
    found: list[tuple[bytes, Change]] = []
    gone: Any = None
    for record in records:
        encoded = key_bytes([record.key[name] for name in KEY])
        if record.value is None:
            assert encoded == gone, "a tombstone stands behind its delete"
            continue
        found.append((encoded, _change(record.value)))
        gone = encoded if record.value["op"] == "d" else None
    return found


def state_of(changes: Sequence[tuple[bytes, Change]]) -> dict[bytes, Shown]:
    """Return the rows that changes end in."""
    rows: dict[bytes, Shown] = {}
    for encoded, change in changes:
        former = rows.pop(encoded, {}) if change.kind == "update" else {}
        columns = {**former, **change.columns}
        rows[encoded] = {name: value for name, value in columns.items() if value is not None}
        if change.kind == "delete":
            del rows[encoded]
    return rows


def _change(value: Mapping[str, Any]) -> Change:
    if value["op"] == "d":
        return Change("delete", {})
    after = _row(value["after"])
    if value["op"] != "u":
        return Change("put", after)
    before = _row(value["before"])
    changed = {name: after.get(name) for name in COLUMNS if after.get(name) != before.get(name)}
    return Change("update", changed)


def _row(fields: Mapping[str, Any]) -> Shown:
    given = {name: fields[name] for name in COLUMNS if fields[name] is not None}
    return show_values({name: COLUMNS[name].mapped(value) for name, value in given.items()})
