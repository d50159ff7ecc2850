"""The syntax of values on the command line, and in JSON.

    NAME=TEXT      a string; for a key column, TEXT read as the column's type
    NAME:=JSON     5 integer, 1.5 or 2.0 double, true boolean, "text" string,
                   {"base64": "AAE="} binary, {"double": "nan"} a double that JSON lacks
    NAME@=FILE     binary, the bytes of a file
    NAME+=INTEGER  an increment (update alone)
    {...}          one JSON object, several columns: {"NAME": VALUE, ...}

The first of the four signs ends the name. A name with such a sign must be in a JSON object. What is
printed can be used as an argument: a number with a point is a double, one without is an integer.
Texts are escaped where a terminal might interpret them.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rowtide.client.wire_row import Special
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = [
    "Assignment",
    "SyntaxRefused",
    "assignment_text",
    "from_json",
    "json_text",
    "key_value",
    "parse_argument",
    "plain_text",
    "to_json",
    "type_name",
]

INT64 = range(-(2**63), 2**63)
_ARGUMENT = re.compile(r"(.+?)(:=|@=|\+=|=)(.*)", re.DOTALL)
_SIGNS = (":", "@", "+")
KEY_TYPES = {INTEGER: "integer", STRING: "string", BINARY: "binary"}


class SyntaxRefused(ValueError):
    """An argument that is no assignment, or a value that the column cannot have."""


class Assignment(NamedTuple):
    """One column's value; ``sign`` distinguishes text (=) and increment (+=) from the others."""

    name: str
    sign: str
    value: Scalar


def parse_argument(text: str, read_file: Callable[[str], bytes]) -> list[Assignment]:
    """Return an argument's assignments. Raises ``SyntaxRefused``, OSError from ``read_file``."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SyntaxRefused(f"{text!r} is not UTF-8") from error
    if text.startswith("{"):
        return _parse_object(text)
    match = _ARGUMENT.fullmatch(text)
    if match is None:
        raise SyntaxRefused(
            f"'{text}' assigns nothing: write NAME=TEXT, NAME:=JSON, NAME@=FILE or {{JSON}}"
        )
    name, sign, value = match.groups()
    if sign == "=":
        return [Assignment(name, sign, value)]
    if sign == "@=":
        return [Assignment(name, sign, read_file(value))]
    if sign == "+=":
        return [Assignment(name, sign, _integer(name, value))]
    return [Assignment(name, sign, from_json(name, _parse_json(value, name)))]


def _parse_object(text: str) -> list[Assignment]:
    found = _parse_json(text, "the object")
    assert isinstance(found, dict), "JSON that starts with a brace is an object"
    return [Assignment(name, ":=", from_json(name, value)) for name, value in found.items()]


def _parse_json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        hint = f"; for a string write {what}={text}" if not text.startswith("{") else ""
        raise SyntaxRefused(f"{what}: {text} is not JSON ({error}){hint}") from error


def _no_constant(name: str) -> float:
    raise ValueError(f'{name} is written {{"double": "{name.lower()}"}}')


def from_json(name: str, value: Any) -> Scalar:
    """Return the value of a piece of JSON."""
    if isinstance(value, dict) and len(value) == 1:
        [(form, text)] = value.items()
        if form == "base64" and isinstance(text, str):
            return _bytes(name, text)
        if form == "double" and text in ("nan", "inf", "-inf"):
            return float(text)
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise SyntaxRefused(f"{name}: the number is too large for a double")
    if isinstance(value, str | bool | float):
        return _clean(name, value)
    raise SyntaxRefused(
        f"{name}: {json.dumps(value)} is no column's value: an integer, double, boolean, string, "
        f'or {{"base64": "..."}}'
    )


def _clean(name: str, value: str | bool | float) -> str | bool | float:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SyntaxRefused(f"{name}: half of a surrogate pair is not a text") from error
    return value


def _bytes(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SyntaxRefused(f"{name}: {text!r} is not base64: {error}") from error


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text):
        raise SyntaxRefused(f"{name}: {text!r} is not an integer")
    return _in_range(name, int(text))


def _in_range(name: str, number: int) -> int:
    if number not in INT64:
        raise SyntaxRefused(f"{name}: {number} does not fit 64 bits")
    return number


# Keys.


def key_value(column: KeyColumn, assignment: Assignment) -> Scalar:
    """Return the value of a key column; text without quotes takes the column's type."""
    value = assignment.value
    if assignment.sign == "+=":
        raise SyntaxRefused(f"{column.name} is part of the key and cannot be incremented")
    if assignment.sign == "=" and isinstance(value, str):
        if column.type == INTEGER:
            return _integer(column.name, value)
        return value.encode() if column.type == BINARY else value
    kinds: Mapping[int, type] = {INTEGER: int, STRING: str, BINARY: bytes}
    if type(value) is not kinds[column.type]:
        raise SyntaxRefused(
            f"{column.name} is a key column of type {KEY_TYPES[column.type]}, not "
            f"{type_name(value)}"
        )
    return value


# Printing.


def type_name(value: Scalar | Special) -> str:
    """Return the name of a value's type for documents."""
    if isinstance(value, Special):
        return value.name.lower()
    names = {bool: "boolean", int: "integer", float: "double", str: "string", bytes: "binary"}
    return names[type(value)]


def to_json(value: Scalar) -> Any:
    """Return the JSON of a value; ``parse_argument`` reads it back."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"double": str(value)}
    return value


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return JSON that is safe to print: what a terminal might interpret is escaped."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return text if text.replace("\n", "").isprintable() else json.dumps(document, indent=indent)


def plain_text(value: Scalar) -> str:
    """Return a value for a table's cell: short, and not always readable as an argument."""
    if isinstance(value, str):
        return value if value.isprintable() else json_text(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if len(value) > 16 else value.hex(" ") or "0 bytes"
    return json_text(to_json(value)) if not isinstance(value, float) else str(value)


def assignment_text(name: str, value: Scalar) -> str:
    """Return the argument that assigns ``value``; not quoted for a shell."""
    plain_name = name.isprintable() and "=" not in name and name[:1] not in ("", "{", "-")
    if not plain_name or name.endswith(_SIGNS):
        return json_text({name: to_json(value)})
    if isinstance(value, str) and value.isprintable():
        return f"{name}={value}"
    return f"{name}:={json_text(to_json(value))}"
