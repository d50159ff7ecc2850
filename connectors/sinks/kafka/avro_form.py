"""Keys and envelopes in Avro, in Confluent's wire format: a zero byte, the schema's id,
the datum.

The schema is in a registry under ``TOPIC-key`` and ``TOPIC-value``. Each column is a
nullable field: a union of every type that it has had, so no value changes on its way. A
new column or type is a new version of the schema, which reads what all earlier versions
wrote. After a restart, and in other processes, the columns are read from the registry's
latest version.

A union has one branch of each Avro type. A decimal is ``bytes`` there, and a time or
timestamp is ``long``. So such a column can't also have a binary value, an integer, or
such a type with other digits. Settings that ask for both are refused, and so is a row
that would need both.

Names in Avro are letters, digits and underscores. Any other character of a column's name
is written ``_uHHHH`` by its code points (UTF-16). So is an underscore that would look
like the start of one.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

import fastavro

from rowtide.connectors.declared_types import (
    LogicalValue,
    fitting_columns,
    normal_columns,
    plain_value,
    type_of_kind,
    unfit_reason,
)
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import SinkRow
from rowtide.connectors.sinks.kafka.columns import Columns, type_of
from rowtide.connectors.sinks.kafka.envelope import Names, RowColumns, envelope
from rowtide.connectors.sinks.kafka.logical_schemas import avro_branch, avro_kind
from rowtide.connectors.sinks.kafka.registry_client import RegistryClient
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["AvroForm", "avro_name", "column_name"]

_AVRO = {
    "boolean": "boolean",
    "integer": "long",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}
_KIND = {avro: kind for kind, avro in _AVRO.items()}
_BRANCH: Mapping[type, str] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
}
MAGIC = b"\x00"
ID_BYTES = 4
_FOREIGN = re.compile(r"[^A-Za-z0-9_]|_(?=u[0-9a-f]{4})|^[0-9]")
_ESCAPED = re.compile(r"(?:_u[0-9a-f]{4})+")


class AvroForm:
    """One table's keys and values in Avro."""

    def __init__(
        self, columns: Columns, names: Names, topic: str, registry: RegistryClient
    ) -> None:
        self.columns = columns
        self.registry = registry
        self._names = names
        self._topic = topic
        self._subject = f"{topic}-value"
        self._space = ".".join(re.sub("[^A-Za-z0-9_]", "_", name) for name in names if name)
        self._registering = asyncio.Lock()
        self._version = -1
        self._key_writer: _Writer | None = None
        self._value_writer: _Writer | None = None
        self._readers: dict[int, Any] = {}
        self._fields: dict[str, str] = {}
        self._bases = {name: _base(made.kind) for name, made in columns.logical.items()}
        self._closed: dict[str, set[str]] = {}
        """By column of a logical type: the kinds that its union can't have."""

    async def open(self) -> None:
        """Read the registered columns. Raises SettingsRefused for types that conflict."""
        await self._merge_registry()

    def unfit(self, row: SinkRow) -> str:
        """Return why a row can't be written, an empty text if it can."""
        columns = row.columns or {}
        if reason := unfit_reason(columns, self.columns.logical):
            return reason
        for name in self._closed.keys() & columns.keys():
            if (kind := type_of(columns[name])) in self._closed[name]:
                return (
                    f"The Avro field of {name!r} can't take a value of the type {kind}: "
                    f"its union has {', '.join(self.columns.types[name])}."
                )
        return ""

    async def prepare(self, rows: Iterable[SinkRow]) -> None:
        """Learn the columns of the next rows, and register new ones."""
        async with self._registering:
            known = [(row.columns, self._fitting(row.before or {})) for row in rows]
            self.columns.learn([columns for both in known for columns in both])
            if self._value_writer is None or self._version != self.columns.version:
                await self._register()

    def key(self, row: SinkRow) -> bytes:
        """Return a record's key."""
        assert self._key_writer is not None, "prepared before"
        return self._key_writer.encode({avro_name(name): value for name, value in row.key})

    def value(self, row: SinkRow, shard: str, now_ms: int) -> bytes:
        """Return a record's value."""
        assert self._value_writer is not None, "prepared before"
        datum = envelope(row, self._names, shard, now_ms, self._row, self._fitting)
        return self._value_writer.encode(datum)

    async def read_record(self, key: bytes, value: bytes) -> tuple[RowColumns, RowColumns | None]:
        """Return key and columns of a record. Columns of None mean that it was deleted."""
        key_columns = _read_columns(await self._decode(key))
        after = (await self._decode(value))["after"]
        if after is None:
            return key_columns, None
        found = _read_columns(after)
        return key_columns, {n: v for n, v in found.items() if n not in key_columns}

    def convert_columns(self, columns: RowColumns) -> RowColumns:
        """Return columns with values of logical types in their normal form."""
        return normal_columns(self.columns.logical, columns)

    def _fitting(self, columns: RowColumns) -> RowColumns:
        """Return the columns of an earlier row that can be written."""
        if not self._closed:  # No column has a logical type.
            return columns
        found = fitting_columns(columns, self.columns.logical)
        return {
            name: value
            for name, value in found.items()
            if name not in self._closed or type_of(value) not in self._closed[name]
        }

    def _row(self, columns: RowColumns | None) -> tuple[str, dict[str, object]] | None:
        if columns is None:
            return None
        fields, key = self._fields, self.columns.key
        return f"{self._space}.Value", {
            fields[name]: value if name in key else self._branch(name, value)
            for name, value in columns.items()
        }

    def _branch(self, name: str, value: Scalar) -> tuple[str, Scalar | LogicalValue]:
        # Name the types, so that fastavro does not guess: an integer also fits a double.
        declared = self.columns.logical.get(name)
        if declared is None:
            return _BRANCH[type(value)], value
        return self._bases[name], declared.convert(value)

    async def _merge_registry(self) -> None:
        latest = await self.registry.latest(self._subject)
        if latest is not None:
            self.columns.merge(_read_schema(latest.schema, self.columns.key))
        self._close_branches()

    def _close_branches(self) -> None:
        """Note which kinds the unions can't have. Raises SettingsRefused if one has both."""
        closed: dict[str, set[str]] = {}
        for name, kinds in self.columns.types.items():
            for kind in kinds:
                if kind in _AVRO:
                    continue
                base = _base(kind)
                alike = [other for other in kinds if _base(other) == base]
                if len(alike) > 1:
                    raise SettingsRefused(
                        f"{self._subject}: the Avro field of {name!r} has the type {alike[0]}, but "
                        f"`columns` asks for {alike[1]} beside it. Both are {base} in Avro, and a "
                        "union has one of each. Name another `topic`, or declare the type that "
                        "the field has."
                    )
                closed.setdefault(name, set()).update(k for k in _AVRO if _AVRO[k] == base)
        self._closed = closed

    async def _register(self) -> None:
        await self._merge_registry()
        version = self.columns.version
        key = self._key_schema()
        value = self._value_schema()
        key_id = await self.registry.register(f"{self._topic}-key", key)
        value_id = await self.registry.register(self._subject, value)
        self._fields = {name: avro_name(name) for name in self.columns.key | self.columns.types}
        self._key_writer, self._value_writer = _Writer(key_id, key), _Writer(value_id, value)
        self._version = version

    def _key_schema(self) -> dict[str, Any]:
        fields = [_field(name, _AVRO[kind]) for name, kind in self.columns.key.items()]
        return {"type": "record", "name": "Key", "namespace": self._space, "fields": fields}

    def _value_schema(self) -> dict[str, Any]:
        row = [_field(name, _AVRO[kind]) for name, kind in self.columns.key.items()]
        for name, kinds in self.columns.types.items():
            row.append(_field(name, ["null", *map(_branch_of, kinds)]) | {"default": None})
        record = {"type": "record", "name": "Value", "fields": row}
        return {
            "type": "record",
            "name": "Envelope",
            "namespace": self._space,
            "fields": [
                {"name": "before", "type": ["null", record], "default": None},
                {"name": "after", "type": ["null", "Value"], "default": None},
                {"name": "source", "type": _SOURCE},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
            ],
        }

    async def _decode(self, message: bytes) -> Any:
        at = len(MAGIC) + ID_BYTES
        schema_id = int.from_bytes(message[len(MAGIC) : at])
        if message[: len(MAGIC)] != MAGIC:
            raise Rejected("OTSParameterInvalid", f"{self._topic}: a record is not in Avro")
        if schema_id not in self._readers:
            schema = await self.registry.schema(schema_id)
            self._readers[schema_id] = fastavro.parse_schema(schema)
        return fastavro.schemaless_reader(io.BytesIO(message[at:]), self._readers[schema_id], None)


class _Writer:
    """Writes values of one registered schema."""

    def __init__(self, schema_id: int, schema: dict[str, Any]) -> None:
        self._head = MAGIC + schema_id.to_bytes(ID_BYTES)
        self._schema = fastavro.parse_schema(schema)

    def encode(self, datum: object) -> bytes:
        out = io.BytesIO()
        out.write(self._head)
        fastavro.schemaless_writer(out, self._schema, datum)
        return out.getvalue()


def avro_name(name: str) -> str:
    """Return a name that is valid in Avro. Different names stay different."""
    return _FOREIGN.sub(lambda found: _escape(found[0]), name)


def column_name(field: str) -> str:
    """Return the column of a field's name."""

    def plain(found: re.Match[str]) -> str:
        units = bytes.fromhex(found[0].replace("_u", ""))
        return units.decode("utf-16-be")

    return _ESCAPED.sub(plain, field)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"_u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _field(name: str, kind: object) -> dict[str, Any]:
    return {"name": avro_name(name), "type": kind}


def _read_columns(fields: Mapping[str, Scalar | LogicalValue | None]) -> dict[str, Scalar]:
    found = {column_name(name): plain_value(value) for name, value in fields.items()}
    return {name: value for name, value in found.items() if value is not None}


def _branch_of(kind: str) -> str | dict[str, object]:
    """Return the branch of a union for values of a kind."""
    declared = type_of_kind(kind)
    return _AVRO[kind] if declared is None else avro_branch(declared)


def _base(kind: str) -> str:
    """Return the Avro type of values of a kind."""
    branch = _branch_of(kind)
    return branch if isinstance(branch, str) else str(branch["type"])


def _kind(branch: str | Mapping[str, Any]) -> str:
    return _KIND[branch] if isinstance(branch, str) else avro_kind(branch)


def _read_schema(schema: dict[str, Any], key: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the columns of an envelope's schema."""
    try:
        [before] = [field for field in schema["fields"] if field["name"] == "before"]
        fields = before["type"][1]["fields"]
        found = {column_name(field["name"]): field["type"] for field in fields}
        return {
            name: tuple(_kind(branch) for branch in branches if branch != "null")
            for name, branches in found.items()
            if name not in key
        }
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Rejected(
            "OTSParameterInvalid", f"the registry's schema is not an envelope of rowtide's: {error}"
        ) from error


_SOURCE = {
    "type": "record",
    "name": "Source",
    "namespace": "io.rowtide.connector",
    "fields": [
        *(_field(name, "string") for name in ("version", "connector", "name")),
        *(_field(name, "long") for name in ("ts_ms", "ts_us")),
        *(_field(name, "string") for name in ("snapshot", "db", "table", "shard")),
        _field("sequence", ["null", "string"]) | {"default": None},
        _field("stamp", "long"),
    ],
}
