"""Readers that turn values of the binlog's rows into rowtide's, one per column.

A reader takes the event's body and the value's offset. It returns the value and its end.
The forms are those of the server's fields: little-endian integers, big-endian decimals
and times with fractions, and texts after their length, in the column's charset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from socket import AF_INET, AF_INET6, inet_ntop
from struct import Struct

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.mysql import table_map as binlog
from rowtide.connectors.sources.mysql.json_values import json_text
from rowtide.connectors.sources.mysql.schema import above_64_bits
from rowtide.connectors.sources.mysql.table_map import BinlogColumn
from rowtide.core.values.variant import Scalar

__all__ = ["Decoder", "Reader", "Unreadable", "reader_of"]

Reader = Callable[[bytes, int], tuple[Scalar, int]]
Decoder = Callable[[bytes], str]
_RawReader = Callable[[bytes, int], tuple[bytes, int]]

_FLOAT = Struct("<f")
_DOUBLE = Struct("<d")
_SRID_BYTES = 4
_INTEGER_BYTES = {
    binlog.TINY: 1,
    binlog.SHORT: 2,
    binlog.INT24: 3,
    binlog.LONG: 4,
    binlog.LONGLONG: 8,
}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes for 0 to 9 decimal digits."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_ZERO_TIME = "0000-00-00 00:00:00"


class Unreadable(Exception):
    """The binlog lacks a part of a row. The text says why. A new copy has it."""


def reader_of(column: BinlogColumn, declared: str, decoder: Decoder | None) -> Reader:
    """Return the reader of a column. ``declared`` is its declared type, if known.

    ``decoder`` is that of the column's charset, None for bytes.
    """
    if column.type in _OLD_TIMES and "(" in declared:
        # The old form of fractions, which the binlog does not describe.
        raise SettingsRefused(
            f"Column {column.name} ({declared}) was made with mysql56_temporal_format=OFF; "
            f"ALTER TABLE .. FORCE gives it the form of today."
        )
    simple = _SIMPLE.get(column.type)
    if simple is not None:
        return simple
    if column.type in _INTEGER_BYTES:
        return _integer(_INTEGER_BYTES[column.type], unsigned=column.unsigned)
    if column.type in (binlog.TIMESTAMP2, binlog.DATETIME2, binlog.TIME2):
        return {
            binlog.TIMESTAMP2: _timestamp,
            binlog.DATETIME2: _datetime,
            binlog.TIME2: _time,
        }[column.type](column.size)
    if column.type == binlog.NEWDECIMAL:
        return _decimal(column.size, column.digits)
    if column.type == binlog.BIT:
        return _bits(column.size)
    if column.type == binlog.ENUM:
        return _enum(column, decoder or _as_text)
    if column.type == binlog.SET:
        return _set(column, decoder or _as_text)
    if column.type == binlog.GEOMETRY:
        return _make_reader(_make_raw_reader(column.size), lambda value: value[_SRID_BYTES:])
    if column.type == binlog.JSON:
        return _make_reader(
            _make_raw_reader(column.size), lambda value: json_text(value, _decimal_text)
        )
    return _characters(column, declared, decoder)


def _decimal_text(precision: int, digits: int, value: bytes) -> str:
    text, _ = _decimal(precision, digits)(value, 0)
    return str(text)


def _characters(column: BinlogColumn, declared: str, decoder: Decoder | None) -> Reader:
    if column.type in (binlog.BLOB, binlog.VECTOR):
        raw = _make_raw_reader(column.size)
    elif column.type in (binlog.VARCHAR, binlog.STRING):
        raw = _make_raw_reader(1 if column.size < 256 else 2)
    else:
        raise SettingsRefused(f"Column {column.name} has an unknown type: {column.type}.")
    length = column.size
    if column.type == binlog.STRING and decoder is None:
        # Bytes of fixed length lack their trailing zeros.
        change = _FIXED.get(declared, bytes)
        return _make_reader(raw, lambda value: change(value.ljust(length, b"\x00")))
    return raw if decoder is None else _make_reader(raw, decoder)


def _as_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _make_reader(raw: _RawReader, change: Callable[[bytes], Scalar]) -> Reader:
    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        value, at = raw(body, at)
        return change(value), at

    return read


def _make_raw_reader(length_bytes: int) -> _RawReader:
    if length_bytes == 1:

        def read_short(body: bytes, at: int) -> tuple[bytes, int]:
            end = at + 1 + body[at]
            return body[at + 1 : end], end

        return read_short

    def read(body: bytes, at: int) -> tuple[bytes, int]:
        begin = at + length_bytes
        end = begin + int.from_bytes(body[at:begin], "little")
        return body[begin:end], end

    return read


def _integer(size: int, *, unsigned: bool) -> Reader:
    if unsigned and size == 8:

        def read_wide(body: bytes, at: int) -> tuple[Scalar, int]:
            end = at + 8
            return above_64_bits(int.from_bytes(body[at:end], "little")), end

        return read_wide
    signed = not unsigned

    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        end = at + size
        return int.from_bytes(body[at:end], "little", signed=signed), end

    return read


def _read_float(body: bytes, at: int) -> tuple[Scalar, int]:
    return _FLOAT.unpack_from(body, at)[0], at + 4


def _read_double(body: bytes, at: int) -> tuple[Scalar, int]:
    return _DOUBLE.unpack_from(body, at)[0], at + 8


def _read_year(body: bytes, at: int) -> tuple[Scalar, int]:
    return 1900 + body[at] if body[at] else 0, at + 1


def _read_date(body: bytes, at: int) -> tuple[Scalar, int]:
    end = at + 3
    value = int.from_bytes(body[at:end], "little")
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", end


def _read_old_time(body: bytes, at: int) -> tuple[Scalar, int]:
    end = at + 3
    value = int.from_bytes(body[at:end], "little", signed=True)
    sign, value = ("-", -value) if value < 0 else ("", value)
    return f"{sign}{value // 10000:02d}:{value // 100 % 100:02d}:{value % 100:02d}", end


def _read_old_datetime(body: bytes, at: int) -> tuple[Scalar, int]:
    end = at + 8
    digits = f"{int.from_bytes(body[at:end], 'little'):014d}"
    date = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    return f"{date} {digits[8:10]}:{digits[10:12]}:{digits[12:]}", end


def _read_old_timestamp(body: bytes, at: int) -> tuple[Scalar, int]:
    end = at + 4
    return _format_time(int.from_bytes(body[at:end], "little")), end


def _format_time(seconds: int) -> str:
    return str(_EPOCH + timedelta(seconds=seconds)) if seconds else _ZERO_TIME


_OLD_TIMES = {binlog.TIME, binlog.DATETIME, binlog.TIMESTAMP}
_SIMPLE: Mapping[int, Reader] = {
    binlog.FLOAT: _read_float,
    binlog.DOUBLE: _read_double,
    binlog.YEAR: _read_year,
    binlog.DATE: _read_date,
    binlog.NEWDATE: _read_date,
    binlog.TIME: _read_old_time,
    binlog.DATETIME: _read_old_datetime,
    binlog.TIMESTAMP: _read_old_timestamp,
}


def _fraction(body: bytes, at: int, digits: int) -> tuple[str, int]:
    """Return a point and ``digits`` digits, and their end. Two digits are a byte."""
    size = (digits + 1) // 2
    if not size:
        return "", at
    end = at + size
    return f".{int.from_bytes(body[at:end], 'big'):0{2 * size}d}"[: digits + 1], end


def _timestamp(digits: int) -> Reader:
    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        shown = _format_time(int.from_bytes(body[at : at + 4], "big"))
        fraction, end = _fraction(body, at + 4, digits)
        return shown + fraction, end

    return read


def _datetime(digits: int) -> Reader:
    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        value = int.from_bytes(body[at : at + 5], "big") & 0x7FFFFFFFFF
        year, month = divmod(value >> 22, 13)
        date = f"{year:04d}-{month:02d}-{value >> 17 & 31:02d}"
        fraction, end = _fraction(body, at + 5, digits)
        clock = f"{value >> 12 & 31:02d}:{value >> 6 & 63:02d}:{value & 63:02d}"
        return f"{date} {clock}{fraction}", end

    return read


def _time(digits: int) -> Reader:
    size = (digits + 1) // 2
    middle = 0x800000 << 8 * size

    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        end = at + 3 + size
        # Seconds and fraction are one number, so both count down in a negative time.
        value = int.from_bytes(body[at:end], "big") - middle
        sign, value = ("-", -value) if value < 0 else ("", value)
        fraction = value & (1 << 8 * size) - 1
        value >>= 8 * size
        clock = f"{value >> 12:02d}:{value >> 6 & 63:02d}:{value & 63:02d}"
        return sign + clock + (f".{fraction:0{2 * size}d}"[: digits + 1] if size else ""), end

    return read


def _decimal(precision: int, digits: int) -> Reader:
    whole_groups, whole_rest = divmod(precision - digits, 9)
    groups, rest = divmod(digits, 9)
    whole = [_DIGIT_BYTES[whole_rest], *[4] * whole_groups]
    behind = [(4, 9)] * groups + [(_DIGIT_BYTES[rest], rest)] * bool(rest)
    size = sum(whole) + sum(part for part, _ in behind)
    ones = (1 << 8 * size) - 1
    top = 0x80 << 8 * (size - 1)

    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        end = at + size
        value = int.from_bytes(body[at:end], "big") ^ top
        sign = ""
        if value & top:  # A negative number has all bits inverted.
            sign, value = "-", value ^ ones
        bytes_of = value.to_bytes(size, "big")
        at = 0
        number = 0
        for part in whole:
            number = number * 10**9 + int.from_bytes(bytes_of[at : at + part], "big")
            at += part
        text = f"{sign}{number}"
        if digits:
            text += "."
            for part, shown in behind:
                text += f"{int.from_bytes(bytes_of[at : at + part], 'big'):0{shown}d}"
                at += part
        return text, end

    return read


def _bits(bits: int) -> Reader:
    size = (bits + 7) // 8
    if bits == 1:
        return lambda body, at: (body[at] != 0, at + 1)
    return lambda body, at: (above_64_bits(int.from_bytes(body[at : at + size], "big")), at + size)


def _enum(column: BinlogColumn, decoder: Decoder) -> Reader:
    size = column.size
    members = ["", *map(decoder, column.members)]

    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        end = at + size
        return members[int.from_bytes(body[at:end], "little")], end

    return read


def _set(column: BinlogColumn, decoder: Decoder) -> Reader:
    size = column.size
    members = [(1 << index, decoder(member)) for index, member in enumerate(column.members)]

    def read(body: bytes, at: int) -> tuple[Scalar, int]:
        end = at + size
        held = int.from_bytes(body[at:end], "little")
        return ",".join([member for bit, member in members if held & bit]), end

    return read


def _uuid(value: bytes) -> str:
    text = value.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_FIXED: dict[str, Callable[[bytes], Scalar]] = {
    "uuid": _uuid,
    "inet4": lambda value: inet_ntop(AF_INET, value),
    "inet6": lambda value: inet_ntop(AF_INET6, value),
}
