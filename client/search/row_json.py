"""Rows as JSON text: values of every type come back as they were.

Bytes are objects with one member. NaN and infinities are written as Python's ``json`` does.
"""

from __future__ import annotations

import base64
import json
from typing import Any

__all__ = ["decode_row_json", "encode_row_json"]

# No column's name begins with '#', so no row looks like a binary value.
_BINARY = "#base64"


def decode_row_json(text: str) -> Any:
    """Return what ``encode_row_json`` was given."""
    return json.loads(text, object_hook=_from_base64)


def _as_base64(value: bytes) -> dict[str, str]:
    return {_BINARY: base64.b64encode(value).decode()}


def _from_base64(found: dict[str, Any]) -> Any:
    return base64.b64decode(found[_BINARY]) if _BINARY in found else found


encode_row_json = json.JSONEncoder(ensure_ascii=False, default=_as_base64).encode
"""Return the text of a row, or of several."""
