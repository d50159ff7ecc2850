"""Logical types in the schemas of Connect and Avro.

    declared     Connect, JSON with schemas                  Avro
    decimal      org.apache.kafka.connect.data.Decimal       bytes, decimal
    date         io.debezium.time.Date                       int, date
    time         io.debezium.time.MicroTime                  long, time-micros
    timestamp    io.debezium.time.MicroTimestamp             long, timestamp-micros

An Avro type also has Connect's name, for readers in Kafka Connect. A date is
``org.apache.kafka.connect.data.Date`` there: Confluent's AvroConverter makes one of each
Avro date, and refuses a schema with another name. Both names mean days since 1970-01-01.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from rowtide.connectors.declared_types import LogicalType, LogicalValue, plain_value
from rowtide.core.values.variant import Scalar

__all__ = ["avro_branch", "avro_kind", "connect_payload", "connect_schema", "connect_value"]

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DAY_FIRST = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIDNIGHT = datetime(1970, 1, 1)  # noqa: DTZ001  # noqa: DTZ001  # A time of a day has no zone.


class _Names(NamedTuple):
    """The names of one type. ``type`` and ``name`` are Connect's; the others are Avro's."""

    type: str
    name: str
    avro_type: str
    logical: str
    avro_name: str


_NAMES = {
    "decimal": _Names("bytes", _DECIMAL, "bytes", "decimal", _DECIMAL),
    "date": _Names(
        "int32", "io.debezium.time.Date", "int", "date", "org.apache.kafka.connect.data.Date"
    ),
    "time": _Names(
        *("int64", "io.debezium.time.MicroTime", "long", "time-micros"),
        "io.debezium.time.MicroTime",
    ),
    "timestamp": _Names(
        *("int64", "io.debezium.time.MicroTimestamp", "long", "timestamp-micros"),
        "io.debezium.time.MicroTimestamp",
    ),
}
_WORD_OF_AVRO = {names.logical: word for word, names in _NAMES.items()}


def connect_schema(declared: LogicalType) -> dict[str, object]:
    """Return a type as a schema of Connect's JsonConverter."""
    names = _NAMES[declared.word]
    found: dict[str, object] = {"type": names.type, "name": names.name, "version": 1}
    return found | ({"parameters": _parameters(declared)} if declared.word == "decimal" else {})


def connect_payload(value: LogicalValue) -> str | int:
    """Return a value as the payload of a message in JSON."""
    if isinstance(value, Decimal):
        return b64encode(_pack_digits(value)).decode()
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    if isinstance(value, date):
        return value.toordinal() - _DAY_FIRST
    return (datetime.combine(_MIDNIGHT, value) - _MIDNIGHT) // _MICROSECOND


def connect_value(schema: Mapping[str, Any], payload: Any) -> Scalar:
    """Return the plain value of a payload. Its schema may be of a logical type."""
    names = {names.name: word for word, names in _NAMES.items()}
    word = names.get(schema.get("name", ""))
    if word is None:
        value: Scalar = payload
        return value
    return _require_value(plain_value(_logical_value(word, schema, payload)))


def avro_branch(declared: LogicalType) -> dict[str, object]:
    """Return a type as a branch of a union in Avro."""
    names = _NAMES[declared.word]
    found: dict[str, object] = {
        "type": names.avro_type,
        "logicalType": names.logical,
        "connect.name": names.avro_name,
        "connect.version": 1,
    }
    if declared.word != "decimal":
        return found
    digits = {"precision": declared.precision, "scale": declared.scale}
    return found | digits | {"connect.parameters": _parameters(declared)}


def avro_kind(branch: Mapping[str, Any]) -> str:
    """Return the kind of a type (``LogicalType.kind``) from its branch. Raises ``KeyError``."""
    word = _WORD_OF_AVRO[branch["logicalType"]]
    return LogicalType(word, branch.get("precision", 0), branch.get("scale", 0)).kind


def _parameters(declared: LogicalType) -> dict[str, str]:
    return {"scale": str(declared.scale), "connect.decimal.precision": str(declared.precision)}


def _logical_value(word: str, schema: Mapping[str, Any], payload: Any) -> LogicalValue:
    if word == "decimal":
        unscaled = int.from_bytes(b64decode(payload), signed=True)
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -int(schema["parameters"]["scale"])))
    if word == "date":
        return date.fromordinal(int(payload) + _DAY_FIRST)
    span = int(payload) * _MICROSECOND
    return (_MIDNIGHT + span).time() if word == "time" else _EPOCH + span


def _pack_digits(value: Decimal) -> bytes:
    """Return a decimal's digits as the shortest two's complement, like Java's BigInteger."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    bits = (~number if number < 0 else number).bit_length()
    return number.to_bytes(bits // 8 + 1, signed=True)


def _require_value(value: Scalar | None) -> Scalar:
    assert value is not None, "a payload that is not NULL has a value"
    return value
