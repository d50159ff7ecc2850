"""Values of PostgreSQL in rowtide. In a copy and in the stream they are texts.

    smallint .. bigint, oid     integer
    boolean                     boolean
    real, double precision      double; a real is exactly the value that the server stores. NaN,
                                Infinity and -Infinity are strings, because rowtide's doubles lack
                                them
    bytea                       binary
    all else                    string, as the server writes it: numeric with its digits, dates and
                                times in ISO form, timestamptz in UTC, intervals in ISO 8601, json
                                as it was written, arrays, ranges and records in braces

A domain is its base type. NULL is no column. In a key, integers and booleans are INTEGER,
binaries BINARY, and all else STRING.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable
from struct import Struct

from rowtide.core.values.schema import BINARY, INTEGER, STRING
from rowtide.core.values.variant import Scalar

__all__ = ["Reader", "key_reader_of", "key_text", "key_type", "reader_of", "split_line"]

# Numbers of the server's built-in types: they never change.
_BOOLEAN = 16
_BYTEA = 17
_INTEGERS = frozenset((20, 21, 23, 26))
_REAL = 700
_DOUBLE = 701

_NOT_FINITE = {text: text.decode() for text in (b"NaN", b"Infinity", b"-Infinity")}
"""Values that a table refuses as a DOUBLE. They are stored as the server's text."""

_FLOAT = Struct("<f")
_ESCAPED = re.compile(rb"\\(.)", re.S)
_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}

Reader = Callable[[bytes], Scalar]


def reader_of(type_oid: int) -> Reader:
    """Return the conversion of a text of a type (no domain) to rowtide's value."""
    if type_oid in _INTEGERS:
        return int
    if type_oid == _BOOLEAN:
        return b"t".__eq__
    if type_oid == _DOUBLE:
        return _double
    if type_oid == _REAL:
        return _real
    return _binary if type_oid == _BYTEA else bytes.decode


def key_reader_of(type_oid: int) -> Reader:
    """Return the conversion of a text of a type to a part of a key."""
    if type_oid == _BOOLEAN:
        return _zero_or_one
    return bytes.decode if type_oid in (_REAL, _DOUBLE) else reader_of(type_oid)


def key_type(type_oid: int) -> int:
    """Return the type of a key column in rowtide."""
    if type_oid in _INTEGERS or type_oid == _BOOLEAN:
        return INTEGER
    return BINARY if type_oid == _BYTEA else STRING


def key_text(value: Scalar) -> str:
    """Return a part of a key as a text that the server reads as that value."""
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


def split_line(line: bytes) -> list[bytes | None]:
    """Return the fields of a line of COPY's text form."""
    fields = line[:-1].split(b"\t")
    if b"\\" not in line:
        return list(fields)
    return [
        None if field == b"\\N" else _ESCAPED.sub(_unescape, field) if b"\\" in field else field
        for field in fields
    ]


def _unescape(found: re.Match[bytes]) -> bytes:
    return _ESCAPES.get(found[1], found[1])


def _zero_or_one(text: bytes) -> Scalar:
    return int(text == b"t")


def _double(text: bytes) -> Scalar:
    return _NOT_FINITE.get(text) or float(text)


def _real(text: bytes) -> Scalar:
    # The text is the shortest that identifies this 32-bit value.
    value: float = _FLOAT.unpack(_FLOAT.pack(float(text)))[0]
    return _NOT_FINITE.get(text) or value


def _binary(text: bytes) -> bytes:
    return unhexlify(text[2:])
