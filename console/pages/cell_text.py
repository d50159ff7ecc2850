"""Values of cells as text that people read and edit. Type and value come back exactly.

A value has a kind and a text. A text with characters that cannot be seen, or that an HTML form
would change, is written as a string of JSON (kind ``json``). Bytes are written as base64 or, in
keys, as hexadecimal digits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

from rowtide.core.values import variant
from rowtide.core.values.key_text import BadKeyText, parse_key_text
from rowtide.core.values.schema import BINARY, INTEGER
from rowtide.core.values.variant import Scalar

__all__ = [
    "KINDS",
    "TEXT_SHOWN_MAX",
    "BadValueText",
    "ValueText",
    "digest_of",
    "key_text",
    "parse_key_field",
    "parse_value",
    "show_value",
]

KINDS = ("text", "json", "int", "double", "bool", "base64", "hex")
"""Kinds that a person may choose for a value. ``json`` is a text too."""

TEXT_SHOWN_MAX = 200
"""Characters of a value in a list of rows."""

NOT_VISIBLE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_DOUBLE = re.compile(
    r"[+-]?((([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)|inf|infinity)|nan", re.IGNORECASE
)


class BadValueText(ValueError):
    """A text is no value of its kind. ``key`` is the text that says so, with its ``values``."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values: dict[str, Any] = values


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value as it is shown. ``size`` is that of the whole value: characters, or bytes."""

    kind: str
    text: str
    size: int
    is_cut: bool


def show_value(value: Scalar, *, characters_max: int = TEXT_SHOWN_MAX) -> ValueText:
    """Return kind and text of a value; a longer text is cut, and then cannot be read back."""
    if isinstance(value, bool):
        return ValueText("bool", "true" if value else "false", 1, is_cut=False)
    if isinstance(value, int):
        return ValueText("int", str(value), 8, is_cut=False)
    if isinstance(value, float):
        return ValueText("double", repr(value), 8, is_cut=False)
    if isinstance(value, bytes):
        shown = value[: characters_max // 4 * 3]
        text = base64.b64encode(shown).decode()
        return ValueText("base64", text, len(value), is_cut=len(shown) < len(value))
    shown_text = value[:characters_max]
    is_cut = len(shown_text) < len(value)
    if _is_plain(shown_text):
        return ValueText("text", shown_text, len(value), is_cut=is_cut)
    return ValueText("json", json.dumps(shown_text), len(value), is_cut=is_cut)


def parse_value(kind: str, text: str) -> Scalar:
    """Return the value that a person wrote. Raises ``BadValueText``.

    A form sends a line's end as CR LF. In a ``text`` it is LF; ``json`` can write any.
    """
    if kind == "text":
        return text.replace("\r\n", "\n").replace("\r", "\n")
    if kind == "json":
        return _parse_json(text)
    if kind == "bool":
        if text.strip().lower() not in ("true", "false"):
            raise BadValueText("rows.bad_bool", value=_short(text))
        return text.strip().lower() == "true"
    if kind == "int":
        return _parse_by_type(INTEGER, text)
    if kind == "double":
        if not _DOUBLE.fullmatch(text.strip()):
            raise BadValueText("rows.bad_double", value=_short(text))
        return float(text.strip())
    if kind == "base64":
        return _parse_base64("".join(text.split()))
    if kind == "hex":
        return _parse_by_type(BINARY, text)
    raise BadValueText("rows.bad_kind", value=_short(kind))


def key_text(value: Scalar) -> str:
    """Return the text of a key column's value, from which ``parse_key_field`` makes it again."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str) and (not value or not _is_plain(value) or value[0] in ' "'):
        return json.dumps(value)
    return str(value)


def parse_key_field(kind: type[Scalar], text: str) -> Scalar:
    """Return the value of a key column. A text in double quotes is a string of JSON.

    Raises ``BadValueText``.
    """
    if kind is str:
        return _parse_json(text) if text.startswith('"') else text
    return _parse_by_type(BINARY if kind is bytes else INTEGER, text)


def digest_of(value: Scalar) -> str:
    """Return a text that is the same for the same value of the same type, and for no other."""
    return hashlib.sha256(variant.encode(value)).hexdigest()[:32]


def _is_plain(text: str) -> bool:
    """True if a form shows all of a text and sends it back as it is."""
    if text.startswith("\n"):
        return False  # The first line's end within a textarea is dropped.
    if text.isascii() and text.isprintable():
        return True
    return not any(
        character != "\n" and unicodedata.category(character) in NOT_VISIBLE for character in text
    )


def _parse_json(text: str) -> str:
    try:
        value = json.loads(text)
        if not isinstance(value, str):
            raise BadValueText("rows.bad_json", value=_short(text))
        value.encode()  # JSON can write half of a pair of surrogates, which UTF-8 cannot.
    except (ValueError, RecursionError) as error:
        raise BadValueText("rows.bad_json", value=_short(text)) from error
    return value


def _parse_by_type(column_type: int, text: str) -> Scalar:
    try:
        return parse_key_text(column_type, text)
    except BadKeyText as error:
        name = "rows.bad_int" if column_type == INTEGER else "rows.bad_hex"
        raise BadValueText(name, value=_short(text.strip())) from error


def _parse_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadValueText("rows.bad_base64", value=_short(text)) from error


def _short(text: str) -> str:
    return f"{text[:40]}…" if len(text) > 40 else text
