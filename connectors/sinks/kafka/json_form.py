"""Keys and envelopes in JSON, as Kafka Connect's JsonConverter writes and reads them.

Bytes are base64. A double that JSON lacks is the text NaN, Infinity or -Infinity. With
schemas each message has its own schema: every column known so far, with one type, NULL if
the row lacks it. A column of several types is ``double`` for integers and doubles if
every integer is exact as a double. Otherwise it is ``string``, with numbers and booleans
as in JSON, and 7.0 as 7. A column of a declared logical type has that type, whatever it
had before.

An envelope's text is joined from the texts of its parts. Its content follows
``envelope.py``.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rowtide.connectors.declared_types import (
    fitting_columns,
    normal_columns,
    type_of_kind,
    unfit_reason,
)
from rowtide.connectors.rows import SinkRow
from rowtide.connectors.sinks.kafka.columns import Columns, type_of
from rowtide.connectors.sinks.kafka.envelope import (
    NAME,
    VERSION,
    Names,
    RowColumns,
    after_of,
    before_of,
    op_of,
)
from rowtide.connectors.sinks.kafka.logical_schemas import (
    connect_payload,
    connect_schema,
    connect_value,
)
from rowtide.core.records.change import ROW
from rowtide.core.values.variant import Scalar

__all__ = ["JsonForm"]

_CONNECT = {
    "boolean": "boolean",
    "integer": "int64",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}
EXACT = 1 << 53
"""Integers up to here are exact as doubles."""
GREAT = "great"
"""A type of a column: an integer that no double equals."""
Json = str | int | float | bool | None


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


_dump = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_base64
).encode


class JsonForm:
    """One table's keys and values in JSON."""

    def __init__(self, columns: Columns, names: Names, *, schemas: bool) -> None:
        self.columns = columns
        self._names = names
        self._schemas = schemas
        self._version = -1
        self._schema = ""
        self._types: dict[str, str] = {}
        self._sources: dict[str, tuple[str, str]] = {}
        """By shard the text before ``ts_ms``, and between ``snapshot`` and ``sequence``."""
        self._key_schema = _dump(_record(f"{names.topic}.Key", columns.key, optional=()))

    async def open(self) -> None:
        """Do nothing: the known columns are in the marks."""

    def unfit(self, row: SinkRow) -> str:
        """Return why a row can't be written, an empty text if it can."""
        return unfit_reason(row.columns or {}, self.columns.logical)

    async def prepare(self, rows: Iterable[SinkRow]) -> None:
        """Learn the columns of the next rows."""
        if self._schemas:
            self.columns.learn([c for row in rows for c in (row.columns, row.before)], _kind)

    def key(self, row: SinkRow) -> bytes:
        """Return a record's key."""
        payload = _text(dict(row.key))
        if not self._schemas:
            return payload.encode()
        return f'{{"schema":{self._key_schema},"payload":{payload}}}'.encode()

    def value(self, row: SinkRow, shard: str, now_ms: int) -> bytes:
        """Return a record's value."""
        before = before_of(row)
        if before is not None:
            before = fitting_columns(before, self.columns.logical)
        payload = (
            f'{{"before":{self._row(before)},"after":{self._row(after_of(row))},'
            f'"source":{self._source(row, shard)},"op":"{op_of(row)}","ts_ms":{now_ms}}}'
        )
        if not self._schemas:
            return payload.encode()
        return f'{{"schema":{self._schema},"payload":{payload}}}'.encode()

    async def read_record(self, key: bytes, value: bytes) -> tuple[RowColumns, RowColumns | None]:
        """Return key and columns of a record, normalised. Columns of None: it was deleted."""
        key_payload, payload = json.loads(key), json.loads(value)
        schemas: Mapping[str, Mapping[str, object]] = {}
        if self._schemas:
            schemas = _after_schemas(payload["schema"])
            key_payload, payload = key_payload["payload"], payload["payload"]
        key_columns = {
            name: b64decode(value) if self.columns.key[name] == "binary" else value
            for name, value in key_payload.items()
        }
        after = payload["after"]
        if after is None:
            return key_columns, None
        found = {
            name: connect_value(schemas.get(name, {}), value)
            for name, value in after.items()
            if name not in key_columns and value is not None
        }
        return key_columns, self.convert_columns(found)

    def convert_columns(self, columns: RowColumns) -> RowColumns:
        """Return columns as they are read back, by the types known now."""
        if not self._schemas:
            return {name: _require_value(_plain(value)) for name, value in columns.items()}
        self._use_schema()
        normal = normal_columns(self.columns.logical, columns)
        return {name: _require_value(_as(normal[name], self._read_as(name))) for name in columns}

    def _read_as(self, name: str) -> str | None:
        # Logical values are compared as texts, also those older than the setting.
        return "string" if name in self.columns.logical else self._types.get(name)

    def _source(self, row: SinkRow, shard: str) -> str:
        """Return the origin of a row. Only what varies by row is encoded again."""
        around = self._sources.get(shard)
        if around is None:
            names = self._names
            begin = {"version": VERSION, "connector": NAME, "name": names.prefix}
            middle = {"db": names.instance, "table": names.table, "shard": shard}
            around = self._sources[shard] = _dump(begin)[:-1], _dump(middle)[1:-1]
        begin_text, middle_text = around
        stamp, snapshot = row.stamp, "true" if row.kind == ROW else "false"
        sequence = f'"[\\"{row.sequence}\\"]"' if row.sequence >= 0 else "null"
        return (
            f'{begin_text},"ts_ms":{stamp // 1000},"ts_us":{stamp},"snapshot":"{snapshot}",'
            f'{middle_text},"sequence":{sequence},"stamp":{stamp}}}'
        )

    def _row(self, columns: RowColumns | None) -> str:
        if columns is None:
            return "null"
        if not self._schemas:
            return _text(columns)
        self._use_schema()
        row: dict[str, Json] = {name: _plain(columns[name]) for name in self.columns.key}
        get, logical = columns.get, self.columns.logical
        for name, kind in self._types.items():
            value, declared = get(name), logical.get(name)
            if declared is None or value is None:
                row[name] = _as(value, kind)
            else:
                row[name] = connect_payload(declared.convert(value))
        return _dump(row)

    def _use_schema(self) -> None:
        if self._version == self.columns.version:
            return
        logical = self.columns.logical
        self._types = {
            name: logical[name].kind if name in logical else _one(kinds)
            for name, kinds in self.columns.types.items()
        }
        types = self.columns.key | self._types
        row = _record(f"{self._names.topic}.Value", types, optional=self._types)
        schema = {
            "type": "struct",
            "name": f"{self._names.topic}.Envelope",
            "version": 2,
            "optional": False,
            "fields": [
                {**row, "field": "before", "optional": True},
                {**row, "field": "after", "optional": True},
                _SOURCE,
                _field("op", "string", optional=False),
                _field("ts_ms", "integer", optional=True),
            ],
        }
        self._schema = _dump(schema)
        self._version = self.columns.version


def _field(name: str, kind: str, *, optional: bool) -> dict[str, object]:
    declared = type_of_kind(kind)
    schema = {"type": _CONNECT[kind]} if declared is None else connect_schema(declared)
    return {"field": name, **schema, "optional": optional}


def _after_schemas(schema: Mapping[str, Any]) -> dict[str, Mapping[str, object]]:
    """Return the schemas of a row's columns from the schema of an envelope."""
    [after] = [field for field in schema["fields"] if field["field"] == "after"]
    return {field["field"]: field for field in after["fields"]}


def _record(name: str, types: Mapping[str, str], *, optional: Iterable[str]) -> dict[str, object]:
    nullable = set(optional)
    fields = [_field(column, kind, optional=column in nullable) for column, kind in types.items()]
    return {"type": "struct", "name": name, "optional": False, "fields": fields}


_SOURCE_TYPES: Mapping[str, str] = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "integer",
    "ts_us": "integer",
    "snapshot": "string",
    "db": "string",
    "table": "string",
    "shard": "string",
    "sequence": "string",
    "stamp": "integer",
}
_SOURCE = _record("io.rowtide.connector.Source", _SOURCE_TYPES, optional=("sequence",)) | {
    "field": "source"
}


def _kind(value: Scalar) -> str:
    """Return the type of a value in JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "string"
    if isinstance(value, int) and abs(value) > EXACT:
        return GREAT
    return type_of(value)


def _one(kinds: Sequence[str]) -> str:
    """Return the one type of a column that has had ``kinds``.

    A logical type that is no longer declared counts as a string: it was made of texts.
    """
    met = {kind if kind in _CONNECT or kind == GREAT else "string" for kind in kinds}
    if met <= {"integer", GREAT}:
        return "integer"
    if met <= {"integer", "double"}:
        return "double"
    return met.pop() if len(met) == 1 else "string"


def _text(columns: RowColumns) -> str:
    """Return columns as JSON, each value as it is."""
    try:
        return _dump(columns)
    except ValueError:  # A double that is not finite.
        return _dump({name: _plain(value) for name, value in columns.items()})


def _plain(value: Scalar) -> Json:
    if isinstance(value, bytes):
        return _base64(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _not_finite(value)
    return value


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _as(value: Json | bytes, kind: str | None) -> Json:
    """Return a value in a column's type."""
    if value is None:
        return None
    plain = _plain(value)
    if kind == "double" and isinstance(plain, int):
        return float(plain)
    if kind == "string" and not isinstance(plain, str):
        # A number has one text, whether an earlier message had it as integer or double.
        if isinstance(plain, float) and plain.is_integer() and abs(plain) <= EXACT:
            return str(int(plain))
        return json.dumps(plain)
    return plain


def _require_value(value: Json) -> Scalar:
    assert value is not None, "an existing column has a value"
    return value
