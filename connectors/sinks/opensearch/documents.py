"""Rows as documents, and back: names, types, and fields beside a row's columns.

A column's values may have several types, but a field has one. So a column has a plain
field with its name, of the type that was most frequent when the column was new. Values of
another type are in a field beside it, ``size@string``. Integers go into a plain field of
doubles and are searched as such. The document keeps each digit. Nothing here calls a
cluster.

    _rowtide.key     the key's bytes in hexadecimal digits: they sort as the table's keys do
    _rowtide.stamp   the commit stamp as of which the row is
    _rowtide.gone    true: the row does not exist; a filter of the alias hides it
    @rest            texts of columns that have no field, because there are too many
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from rowtide.connectors.rows import SinkRow
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.variant import Scalar

__all__ = ["META", "OWN_FIELDS", "FieldPlan", "id_of", "tombstone"]

META = "_rowtide"
REST = "@rest"
"""No column's field has this name. A query of all fields omits those that begin with '_'."""

OWN_FIELDS: Mapping[str, object] = {
    META: {
        "properties": {
            "key": {"type": "keyword"},
            "stamp": {"type": "long"},
            "gone": {"type": "boolean"},
        }
    },
    REST: {"type": "text"},
}

ID_BYTES_MAX = 512
# A term has at most 32,766 bytes, and a character up to four. Longer texts are found by
# their words.
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 8191}}}
_FIELDS: Mapping[str, Mapping[str, object]] = {
    "string": _TEXT,
    "integer": {"type": "long"},
    "double": {"type": "double"},
    "boolean": {"type": "boolean"},
    "binary": {"type": "binary"},
    "nonfinite": {"type": "keyword"},
}
_KIND_OF_FIELD = {"text": "string", "long": "integer", "keyword": "nonfinite"}
_KINDS: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "double",
    bool: "boolean",
    bytes: "binary",
}
# A point would make an object, '@' starts a type, '*' is a pattern, and so on.
_UNSAFE = re.compile(r'[%.@*\\"<>|,?#\x00-\x20\x7f-\xa0]|^_')

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class FieldPlan:
    """The fields of one index: the field of each column and type of value.

    ``fields_max`` bounds the number of fields. A later column gets none, but the document
    keeps it.
    """

    def __init__(self, fields_max: int) -> None:
        self._fields_max = fields_max
        self._plain: dict[str, str] = {}
        """Column to the type of its plain field."""
        self._beside: set[str] = set()
        self._chosen: dict[tuple[str, str], str] = {}
        self._full = False

    def load(self, properties: Mapping[str, Any]) -> None:
        """Read the fields of an index."""
        self._plain, self._beside, self._chosen = {}, set(), {}
        for field, kind in properties.items():
            if field in OWN_FIELDS:
                continue
            if "@" in field:
                self._beside.add(field)
            else:
                of = kind.get("type", "")
                self._plain[_column(field)] = _KIND_OF_FIELD.get(of, of)

    def fill(self) -> None:
        """Give no further column a field: the index accepts no more."""
        self._full = True

    def lacking(self, rows: Iterable[SinkRow]) -> dict[str, Mapping[str, object]]:
        """Return the fields that an index needs for rows."""
        seen: dict[str, Counter[str]] = {}
        for row in rows:
            for name, value in _columns(row):
                kind = _kind(value)
                if (name, kind) not in self._chosen:
                    seen.setdefault(name, Counter())[kind] += 1
        lacking: dict[str, Mapping[str, object]] = {}
        room = self._fields_max - self._count()
        for name, kinds in seen.items():
            for field, kind in self._plan_fields(name, kinds).items():
                if self._full or room < _size(kind):
                    self._leave_out(name, kinds)
                    break
                room -= _size(kind)
                lacking[field] = _FIELDS[kind]
        return lacking

    def document(self, row: SinkRow) -> str:
        """Return a row as JSON."""
        if row.columns is None:
            return tombstone(row.key_bytes, row.stamp)
        fields: dict[str, object] = {META: {"key": row.key_bytes.hex(), "stamp": row.stamp}}
        rest: list[str] = []
        for name, value in _columns(row):
            kind = _kind(value)
            field = self._field(name, kind)
            if field not in self._beside and "@" in field and kind == "string":
                rest.append(str(value))
            fields[field] = _encode_value(kind, value)
        if rest:
            fields[REST] = rest
        return _encode(fields)

    def row(self, document: Mapping[str, Any], key_names: frozenset[str]) -> HeldRow:
        """Return the row of a document without the columns of ``key_names``."""
        columns: dict[str, Scalar] = {}
        for field, value in document.items():
            if field in OWN_FIELDS:
                continue
            plain, _, kind = field.partition("@")
            name = _column(plain)
            if name not in key_names:
                columns[name] = _read(kind or self._plain.get(name, ""), value)
        meta = document[META]
        return HeldRow(bytes.fromhex(meta["key"]), meta["stamp"], columns)

    def _plan_fields(self, name: str, kinds: Counter[str]) -> dict[str, str]:
        """Return the missing fields that a column's values need."""
        wanted: dict[str, str] = {}
        escaped = _escape(name)
        plain = self._plain.get(name)
        if plain is None:
            plain = _most_frequent(kinds)
            if plain != "nonfinite":
                wanted[escaped] = plain
        for kind in kinds:
            field = f"{escaped}@{kind}"
            if not _fits(kind, plain) and field not in self._beside:
                wanted[field] = kind
        return wanted

    def _leave_out(self, name: str, kinds: Iterable[str]) -> None:
        """Put values of a column into fields that are not indexed."""
        plain = self._plain.get(name)
        for kind in kinds:
            if plain is None or not _fits(kind, plain):
                self._chosen[name, kind] = f"{_escape(name)}@{kind}"

    def _field(self, name: str, kind: str) -> str:
        field = self._chosen.get((name, kind))
        if field is None:
            plain = self._plain.get(name)
            escaped = _escape(name)
            fits = plain is not None and _fits(kind, plain)
            field = self._chosen[name, kind] = escaped if fits else f"{escaped}@{kind}"
        return field

    def _count(self) -> int:
        beside = [field.partition("@")[2] for field in self._beside]
        return sum(map(_size, [*self._plain.values(), *beside]))


def tombstone(key_bytes: bytes, stamp: int) -> str:
    """Return the document of a deleted row."""
    return _encode({META: {"key": key_bytes.hex(), "stamp": stamp, "gone": True}})


def id_of(key_bytes: bytes) -> str:
    """Return a document's id: the key's bytes in hex, or a digest if that is too long."""
    text = key_bytes.hex()
    return text if len(text) <= ID_BYTES_MAX else "#" + hashlib.sha256(key_bytes).hexdigest()


def _columns(row: SinkRow) -> Iterable[tuple[str, Scalar]]:
    if row.columns is None:
        return ()
    return (*row.key, *row.columns.items())


def _kind(value: Scalar) -> str:
    if type(value) is float and not math.isfinite(value):
        return "nonfinite"
    return _KINDS[type(value)]


def _most_frequent(kinds: Counter[str]) -> str:
    """Return the type of a new plain field. Integers and doubles share one of doubles."""
    [(kind, _)] = kinds.most_common(1)
    return "double" if kind == "integer" and "double" in kinds else kind


def _fits(kind: str, plain: str) -> bool:
    return kind != "nonfinite" and (kind == plain or (kind == "integer" and plain == "double"))


def _size(kind: str) -> int:
    """Return how many fields the cluster counts for a kind."""
    return 2 if kind == "string" else 1


def _encode_value(kind: str, value: Scalar) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if kind == "nonfinite" else value


def _read(kind: str, value: Any) -> Scalar:
    if kind == "binary":
        return base64.b64decode(value)
    found: Scalar = float(value) if kind == "nonfinite" else value
    return found


def _escape(name: str) -> str:
    """Return the field name of a column. Different columns get different names."""
    return _UNSAFE.sub(lambda found: _percent(found[0]), name) or "%"


def _percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _column(field: str) -> str:
    return "" if field == "%" else unquote(field)
