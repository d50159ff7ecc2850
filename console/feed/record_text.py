"""One change as the JSON text that viewers get, and back.

    {"kind": "put", "key": {...}, "columns": {...}, "removed": [...], "before": {...} or null,
     "stamp": ..., "sequence": ..., "shard": "s1"}

A browser reads JSON numbers as doubles. So that no type and no digit is lost, bytes are
{"base64": ...}, doubles that JSON lacks or that have no fraction {"double": "1.0"}, and integers
beyond 2**53 {"int": ...}.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Set
from typing import Any, cast

from rowtide.core.records.change import Change
from rowtide.core.values.variant import Scalar

__all__ = ["change_text", "documents", "filter_row", "json_bytes", "narrow_text", "parse_values"]

EXACT_INT_MAX = 2**53 - 1

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_bytes(document: Any) -> bytes:
    """Return a document as JSON of one line, in UTF-8."""
    return _encode(document).encode()


def change_text(change: Change, hidden: Set[str]) -> bytes:
    """Return the JSON text of a change, without the columns that are hidden."""
    return json_bytes(change_document(change, hidden))


def change_document(change: Change, hidden: Set[str]) -> dict[str, Any]:
    """Return what ``change_text`` encodes."""
    columns, removed, before = change.columns, change.removed, change.before
    if hidden:
        columns = {name: value for name, value in columns.items() if name not in hidden}
        removed = [name for name in removed if name not in hidden]
        if before is not None:
            before = {name: value for name, value in before.items() if name not in hidden}
    return {
        "kind": change.kind,
        "key": documents(dict(change.key), hidden),
        "columns": documents(columns),
        "removed": removed,
        "before": None if before is None else documents(before),
        "stamp": change.stamp,
        "sequence": change.sequence,
        "shard": change.shard,
    }


def documents(values: Mapping[str, Scalar], hidden: Set[str] = frozenset()) -> dict[str, Any]:
    """Return values as JSON has them. A hidden column has the value null."""
    return {name: None if name in hidden else _document(value) for name, value in values.items()}


def _document(value: Scalar) -> Any:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -EXACT_INT_MAX <= value <= EXACT_INT_MAX else {"int": str(value)}
    if isinstance(value, float):
        is_special = not math.isfinite(value) or value.is_integer()
        return {"double": repr(value)} if is_special else value
    return {"base64": base64.b64encode(value).decode()}


def parse_values(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the values of a text's columns; a hidden one is left out."""
    return {name: _value(value) for name, value in values.items() if value is not None}


def _value(document: Any) -> Scalar:
    if not isinstance(document, dict):
        return cast(Scalar, document)
    if "base64" in document:
        return base64.b64decode(document["base64"])
    if "int" in document:
        return int(document["int"])
    return float(document["double"])


def filter_row(text: bytes) -> dict[str, Scalar]:
    """Return the row that a filter tests: the key, the columns, and what an update leaves alone.

    Those are known if the stream keeps original columns; others are absent. So is a column that the
    update removed. A delete is tested by the row as it was, as far as the stream keeps it.
    """
    record = json.loads(text)
    row: dict[str, Scalar] = {}
    if record["kind"] in ("update", "delete") and record["before"]:
        row = parse_values(record["before"])
        for name in record["removed"]:
            row.pop(name, None)
    return row | parse_values(record["key"]) | parse_values(record["columns"])


def narrow_text(text: bytes, columns: Set[str]) -> bytes | None:
    """Return a change with no more than these columns, next to its key.

    None if it is an update that changes none of them. A put or a delete always ends what the row
    had before.
    """
    record = json.loads(text)
    record["columns"] = _only(record["columns"], columns)
    record["removed"] = [name for name in record["removed"] if name in columns]
    if record["kind"] == "update" and not record["columns"] and not record["removed"]:
        return None
    if record["before"] is not None:
        record["before"] = _only(record["before"], columns)
    return json_bytes(record)


def _only(values: Mapping[str, Any], columns: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in columns}
