"""A row on its way to a sink as JSON text, for people and for reading it again.

Integers and doubles differ by the point. Bytes are {"base64": ...}, and doubles that JSON
lacks are {"double": "nan"}.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any, cast

from rowtide.connectors.rows import SinkRow
from rowtide.core.records.change import Kind
from rowtide.core.values.variant import Scalar

__all__ = ["read_row", "row_text"]


def row_text(row: SinkRow) -> str:
    """Return a row as a text."""
    document = {
        "key": {name: _document(value) for name, value in row.key},
        "columns": None if row.columns is None else _documents(row.columns),
        "kind": row.kind,
        "before": None if row.before is None else _documents(row.before),
        "stamp": row.stamp,
        "sequence": row.sequence,
        "existed": row.existed,
    }
    return json.dumps(document, ensure_ascii=False)


def read_row(text: str, key_bytes: bytes) -> SinkRow:
    """Return the row of a text. Raises ``ValueError``, ``KeyError``."""
    document = json.loads(text)
    return SinkRow(
        tuple(_values(document["key"]).items()),
        key_bytes,
        int(document["stamp"]),
        None if document["columns"] is None else _values(document["columns"]),
        cast(Kind, document["kind"]),
        None if document["before"] is None else _values(document["before"]),
        int(document["sequence"]),
        document.get("existed"),  # Missing in texts of earlier versions.
    )


def _documents(columns: Mapping[str, Scalar]) -> dict[str, Any]:
    return {name: _document(value) for name, value in columns.items()}


def _document(value: Scalar) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": str(value)}
    return value


def _values(documents: Mapping[str, Any]) -> dict[str, Scalar]:
    return {name: _value(document) for name, document in documents.items()}


def _value(document: Any) -> Scalar:
    if not isinstance(document, dict):
        return cast(Scalar, document)
    if "base64" in document:
        return base64.b64decode(document["base64"])
    return float(document["double"])
