"""MySQL's binary JSON of the binlog as text, equal to the text of a query.

    type 1, then by type:
    0, 2    object, array: count 2 | size 2 | keys: offset 2, length 2 | values: type 1, value 2
    1, 3    the same with counts, sizes, offsets and values of 4
    4       literal 1: null, true, false
    5 .. 10 integers: 2, unsigned 2, 4, unsigned 4, 8, unsigned 8
    11      double 8
    12      string: length, seven bits a byte, UTF-8
    15      another type of the server 1 | length as above | its bytes

A member's value is in its slot if it fits there. Otherwise the slot has its offset from
the start of its object or array. The text is exactly the server's, so that a snapshot and
the binlog agree. Numbers of any size keep their value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from struct import Struct

from rowtide.connectors.double_text import ANY_WIDTH, double_text

__all__ = ["json_text"]

_LITERALS = ("null", "true", "false")
_INTEGERS = {5: (2, True), 6: (2, False), 7: (4, True), 8: (4, False), 9: (8, True), 10: (8, False)}
_LITERAL, _DOUBLE, _STRING, _OPAQUE = 4, 11, 12, 15
_DATE, _TIME, _DATETIMES, _DECIMAL = 10, 11, (7, 12), 246
_SPECIAL = re.compile(r'["\\\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}

DecimalText = Callable[[int, int, bytes], str]


def json_text(value: bytes, decimal: DecimalText) -> str:
    """Return a value as text. ``decimal`` reads a DECIMAL of a precision and scale."""
    if not value:
        return "null"  # A statement that ignores errors leaves an empty value.
    return _value(value[0], value, 1, decimal)


def _value(kind: int, body: bytes, at: int, decimal: DecimalText) -> str:
    if kind in _INTEGERS:
        size, signed = _INTEGERS[kind]
        return str(int.from_bytes(body[at : at + size], "little", signed=signed))
    if kind == _LITERAL:
        return _LITERALS[body[at]]
    if kind == _DOUBLE:
        shown = double_text(Struct("<d").unpack_from(body, at)[0], ANY_WIDTH)
        return shown if "." in shown or "e" in shown else f"{shown}.0"
    if kind == _STRING:
        length, at = _length(body, at)
        return _quote(body[at : at + length])
    if kind == _OPAQUE:
        length, begin = _length(body, at + 1)
        return _opaque(body[at], body[begin : begin + length], decimal)
    parts = list(_parts(kind, body[at:], decimal))
    return f"{{{', '.join(parts)}}}" if kind < 2 else f"[{', '.join(parts)}]"


def _parts(kind: int, body: bytes, decimal: DecimalText) -> Iterator[str]:
    """Yield the members of an object or array. Offsets count from its start."""
    wide, is_object = 4 if kind % 2 else 2, kind < 2
    count, at = int.from_bytes(body[:wide], "little"), 2 * wide
    values = at + count * (wide + 2 if is_object else 0)
    for number in range(count):
        name = ""
        if is_object:
            entry = at + number * (wide + 2)
            begin = int.from_bytes(body[entry : entry + wide], "little")
            length = int.from_bytes(body[entry + wide : entry + wide + 2], "little")
            name = _quote(body[begin : begin + length]) + ": "
        entry = values + number * (1 + wide)
        member = body[entry]
        held = member == _LITERAL or _INTEGERS.get(member, (9, True))[0] <= wide
        place = int.from_bytes(body[entry + 1 : entry + 1 + wide], "little")
        yield name + _value(member, body, entry + 1 if held else place, decimal)


def _length(body: bytes, at: int) -> tuple[int, int]:
    length = shift = 0
    while True:
        byte = body[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return length, at


def _quote(text: bytes) -> str:
    return f'"{_SPECIAL.sub(_escape, text.decode("utf-8", "replace"))}"'


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


def _opaque(kind: int, value: bytes, decimal: DecimalText) -> str:
    if kind == _DECIMAL:
        return decimal(value[0], value[1], value[2:])
    if kind in (_DATE, _TIME, *_DATETIMES):
        return f'"{_moment(kind, int.from_bytes(value, "little", signed=True))}"'
    return f'"base64:type{kind}:{base64.b64encode(value).decode()}"'


def _moment(kind: int, packed: int) -> str:
    """Return a time: a fraction in 24 bits; seconds and minutes in 6; hours, or day and so on."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    fraction, clock = packed & 0xFFFFFF, packed >> 24
    if kind == _TIME:
        hours = clock >> 12 & 0x3FF
        return f"{sign}{hours:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{fraction:06d}"
    days = clock >> 17
    year, month = divmod(days >> 5, 13)
    day = f"{year:04d}-{month:02d}-{days & 31:02d}"
    if kind == _DATE:
        return day
    shown = f"{clock >> 12 & 31:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}"
    return f"{day} {shown}.{fraction:06d}"
