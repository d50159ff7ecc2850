"""One value as the wire writes it without a length prefix: a type byte, then the data.

    00 INTEGER  int64           03 STRING  len32 + UTF-8     09 INF_MIN
    01 DOUBLE   IEEE 754, 64    07 BLOB    len32 + bytes     0A INF_MAX
    02 BOOLEAN  00 or 01        06 NULL                      0B AUTO_INCREMENT

Integers are little-endian. Values have this form everywhere: in requests, stored rows and
conditions. Two values of one type are equal exactly if their variants are. Doubles are compared by
their bits, so 0.0 and -0.0 differ. Only ``check`` accepts bytes that may be malformed.
"""

from __future__ import annotations

import math
import struct

from rowtide.core.values import errors

__all__ = [
    "AUTO_INCREMENT",
    "BLOB",
    "BOOLEAN",
    "DOUBLE",
    "INF_MAX",
    "INF_MIN",
    "INTEGER",
    "NULL",
    "STRING",
    "V_AUTO_INCREMENT",
    "V_INF_MAX",
    "V_INF_MIN",
    "Scalar",
    "check",
    "check_finite",
    "decode",
    "encode",
    "payload_size",
    "type_name",
]

# The type bytes. They are on the wire and in stored rows: never renumber.
INTEGER = 0
DOUBLE = 1
BOOLEAN = 2
STRING = 3
NULL = 6
BLOB = 7
INF_MIN = 9
INF_MAX = 10
AUTO_INCREMENT = 11

V_INF_MIN = b"\x09"
V_INF_MAX = b"\x0a"
V_AUTO_INCREMENT = b"\x0b"

Scalar = int | float | bool | str | bytes

_SIZES = {INTEGER: 9, DOUBLE: 9, BOOLEAN: 2, NULL: 1, INF_MIN: 1, INF_MAX: 1, AUTO_INCREMENT: 1}
"""Bytes of a variant, including its type byte, if the type alone decides."""

_OVERHEAD = tuple(5 if kind in (STRING, BLOB) else 1 for kind in range(256))

_NAMES = {
    INTEGER: "VT_INTEGER",
    DOUBLE: "VT_DOUBLE",
    BOOLEAN: "VT_BOOLEAN",
    STRING: "VT_STRING",
    NULL: "VT_NULL",
    BLOB: "VT_BLOB",
    INF_MIN: "VT_INF_MIN",
    INF_MAX: "VT_INF_MAX",
    AUTO_INCREMENT: "VT_AUTO_INCREMENT",
}

_TYPED_INTEGER = struct.Struct("<Bq")
_TYPED_DOUBLE = struct.Struct("<Bd")
_TYPED_LENGTH = struct.Struct("<BI")


def encode(value: Scalar) -> bytes:
    """Return the variant of a Python value; ``bool`` is BOOLEAN, not INTEGER."""
    if isinstance(value, str):
        try:
            text = value.encode()
        except UnicodeEncodeError as error:
            raise errors.invalid(f"A string value is not UTF-8: {error.reason}.") from error
        return _TYPED_LENGTH.pack(STRING, len(text)) + text
    if isinstance(value, bytes):
        return _TYPED_LENGTH.pack(BLOB, len(value)) + value
    if isinstance(value, bool):
        return b"\x02\x01" if value else b"\x02\x00"
    if isinstance(value, int):
        try:
            return _TYPED_INTEGER.pack(INTEGER, value)
        except struct.error as error:
            raise errors.invalid(f"An INTEGER value needs more than 64 bits: {value}.") from error
    return _TYPED_DOUBLE.pack(DOUBLE, value)


def decode(variant: bytes) -> Scalar:
    """Return the Python value of a well-formed variant. NULL, INF and AUTO_INCREMENT have none."""
    kind = variant[0]
    if kind == STRING:
        return variant[5:].decode()
    if kind == INTEGER:
        integer: int = _TYPED_INTEGER.unpack(variant)[1]
        return integer
    if kind == BLOB:
        return variant[5:]
    if kind == DOUBLE:
        number: float = _TYPED_DOUBLE.unpack(variant)[1]
        return number
    if kind == BOOLEAN:
        return variant[1] == 1
    raise errors.invalid(f"{type_name(variant)} is not a value.")


def check(variant: bytes) -> None:
    """Reject bytes that are not exactly one variant."""
    kind = variant[0] if variant else -1
    if kind in (STRING, BLOB):
        if len(variant) < 5 or int.from_bytes(variant[1:5], "little") != len(variant) - 5:
            raise errors.invalid(f"{_NAMES[kind]} value of {len(variant)} bytes: wrong length.")
        if kind == STRING:
            _check_text(variant)
    elif kind not in _SIZES:
        raise errors.invalid(f"Invalid value: {_NAMES.get(kind, f'unknown type {kind}')}.")
    elif len(variant) != _SIZES[kind]:
        raise errors.invalid(
            f"{_NAMES[kind]} value of {len(variant)} bytes: must have {_SIZES[kind]}."
        )
    elif kind == BOOLEAN and variant[1] > 1:
        raise errors.invalid(f"VT_BOOLEAN value {variant[1]}: must be 0 or 1.")


def _check_text(variant: bytes) -> None:
    try:
        variant[5:].decode()
    except UnicodeDecodeError as error:
        raise errors.invalid(f"VT_STRING value is not UTF-8: {error.reason}.") from error


def check_finite(variant: bytes) -> None:
    """Reject a DOUBLE that is NaN or infinite; accept other values."""
    if variant[0] != DOUBLE:
        return
    number = _TYPED_DOUBLE.unpack(variant)[1]
    if math.isnan(number):
        raise errors.invalid("NaN can't be set to double value.")
    if math.isinf(number):
        raise errors.invalid("Infinity can't be set to double value.")


def payload_size(variant: bytes) -> int:
    """Return a value's size for limits and capacity: its data, without type and length."""
    return len(variant) - _OVERHEAD[variant[0]]


def type_name(variant: bytes) -> str:
    """Return the type's name for error messages, such as ``VT_INTEGER``."""
    kind = variant[0] if variant else -1
    return _NAMES.get(kind, f"VT_UNKNOWN_{kind}")
