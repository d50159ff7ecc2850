"""One change as the JSON text that viewers get, and back.

    {"kind": "put", "key": {...}, "columns": {...}, "removed": [...], "before": {...} or null,
     "after": {...} or null, "existed": true, false or null, "stamp": ..., "sequence": ...,
     "shard": "s1"}

A browser reads JSON numbers as doubles. So that no type and no digit is lost, bytes are
{"base64": ...}, doubles that JSON lacks or that have no fraction {"double": "1.0"}, and integers
beyond 2**53 {"int": ...}.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from json.encoder import encode_basestring as _quote
from typing import Any, cast

from rowtide.core.records.change import Change
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, PUT, Cell
from rowtide.core.values.variant import Scalar

__all__ = ["change_text", "filter_row", "json_bytes", "narrow_text", "parse_values"]

EXACT_INT_MAX = 2**53 - 1

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_bytes(document: Any) -> bytes:
    """Return a document as JSON of one line, in UTF-8."""
    return _encode(document).encode()


def change_text(change: Change, hidden: frozenset[str]) -> bytes:
    """Return the JSON text of a change, without the columns that are hidden.

    Joined from the texts of its values: dictionaries for a JSON encoder take twice the time.
    """
    key_values, cells, before_cells, kept = change.parts
    hidden_names = _encode_names(hidden)
    key = ",".join(
        [
            _name(name) + ("null" if name in hidden_names else _value_text(value))
            for name, value in zip(change.table.key_names, key_values, strict=True)
        ]
    )
    columns, removed = _columns_text(cells, hidden_names)
    before = after = existed = "null"
    if before_cells is not None:
        before = "{" + _columns_text(before_cells, hidden_names)[0] + "}"
    if kept is not None:
        after = "{" + _columns_text(change.after_cells or (), hidden_names)[0] + "}"
        existed = "true" if kept.existed else "false"
    return (
        f'{{"kind":"{change.kind}","key":{{{key}}},"columns":{{{columns}}},"removed":[{removed}],'
        f'"before":{before},"after":{after},"existed":{existed},"stamp":{change.stamp},'
        f'"sequence":{change.sequence},"shard":{_quote(change.shard)}}}'
    ).encode()


def _columns_text(cells: Sequence[Cell], hidden: Set[bytes]) -> tuple[str, str]:
    """Return each column that is put with its newest value, and the columns that are removed."""
    newest: dict[bytes, Cell] = {}
    removed: list[str] = []
    for cell in cells:
        name = cell.name
        if name in hidden:
            continue
        if cell.op == PUT:
            held = newest.get(name)
            if held is None or (held.version_ms or 0) < (cell.version_ms or 0):
                newest[name] = cell
        elif cell.op == DELETE_ALL:
            removed.append(_quote(name.decode()))
    columns = [_name(name) + _value_text(cell.variant) for name, cell in newest.items()]
    return ",".join(columns), ",".join(removed)


@lru_cache(4096)
def _name(name: bytes) -> str:
    return _quote(name.decode()) + ":"


@lru_cache(64)
def _encode_names(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)


def _value_text(encoded: bytes) -> str:
    """Return the JSON of a variant."""
    if encoded[0] == variant.STRING:
        return _quote(encoded[5:].decode())
    value = variant.decode(encoded)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -EXACT_INT_MAX <= value <= EXACT_INT_MAX else f'{{"int":"{value}"}}'
    if isinstance(value, float):
        is_special = not math.isfinite(value) or value.is_integer()
        return f'{{"double":"{value!r}"}}' if is_special else repr(value)
    assert isinstance(value, bytes), "texts were first"
    return f'{{"base64":"{base64.b64encode(value).decode()}"}}'


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
    for name in ("before", "after"):
        if record[name] is not None:
            record[name] = _only(record[name], columns)
    return json_bytes(record)


def _only(values: Mapping[str, Any], columns: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in columns}
