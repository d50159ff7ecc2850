"""One comparison of a filter: a column against a value.

Values of one type compare as numbers, as UTF-8 or raw bytes, or as false < true. Values of
different types are not equal and have no order. A value rule first extracts a text from a STRING
and casts it. A cell from which it gets nothing (another type, no match, a text that is no number)
counts as missing. With ``latest_only`` a column's newest cell is compared, otherwise any cell may
pass.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Any

from rowtide.core.protocol.wire import ots_pb2 as wire
from rowtide.core.rows.filter_regex import Extractor, compile_regex
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import check_column_name

__all__ = ["Comparison", "compile_comparison"]

_COMPARE: dict[int, Callable[[Any, Any], bool]] = {
    wire.CT_EQUAL: operator.eq,
    wire.CT_NOT_EQUAL: operator.ne,
    wire.CT_GREATER_THAN: operator.gt,
    wire.CT_GREATER_EQUAL: operator.ge,
    wire.CT_LESS_THAN: operator.lt,
    wire.CT_LESS_EQUAL: operator.le,
}
_VALUES = frozenset(
    (variant.INTEGER, variant.DOUBLE, variant.BOOLEAN, variant.STRING, variant.BLOB)
)
_REQUIRED = (
    "comparator",
    "column_name",
    "column_value",
    "filter_if_missing",
    "latest_version_only",
)
_INTEGER = re.compile(rb"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(
    rb"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,9})?"
)

_name = itemgetter(0)
Operand = int | float | bytes
_NOTHING: Operand = b""


@dataclass(slots=True)
class Comparison:
    """A leaf. ``compare`` is None for EXIST and NOT_EXIST, whose result is ``without_column``.

    ``without_column`` is the result for a row that lacks the column. ``needle`` is the start of the
    column within a key's wire bytes.
    """

    name: bytes
    needle: bytes
    compare: Callable[[Any, Any], bool] | None
    kind: int
    operand: Operand
    without_column: bool
    latest_only: bool
    rule: Rule | None

    def holds(self, key: bytes, cells: Sequence[Cell]) -> bool:
        """True if the row passes. ``key`` is its key's wire bytes, empty for none."""
        if self.needle in key:
            value = _key_value(key, self.name)
            if value is not None:
                return self._has_match((value,))
        name = self.name
        at = bisect_left(cells, name, key=_name)
        if at == len(cells) or cells[at][0] != name:
            return self.without_column
        if self.latest_only:
            return self._has_match((cells[at][2],))
        versions = takewhile(lambda cell: cell[0] == name, cells[at:])
        return self._has_match(cell[2] for cell in versions)

    def _has_match(self, values: Iterator[bytes] | tuple[bytes, ...]) -> bool:
        rule, compare = self.rule, self.compare
        missing = True
        for value in values:
            kind, operand = value[0], None
            if rule is not None:
                kind, operand = rule.cast_type, rule.cut(value)
                if operand is None:
                    continue
            if compare is None:
                return not self.without_column
            missing = False
            if kind != self.kind:
                if compare is operator.ne:
                    return True
            elif compare(_operand(value) if operand is None else operand, self.operand):
                return True
        return missing and self.without_column


@dataclass(slots=True)
class Rule:
    """Extracts a value from a STRING and casts it to ``cast_type``."""

    extractor: Extractor
    cast_type: int

    def cut(self, value: bytes) -> Operand | None:
        """Return the value, or None if there is none of this type."""
        if value[0] != variant.STRING:
            return None
        text = self.extractor.extract(value[5:])
        if text is None:
            return None
        if self.cast_type == variant.STRING:
            return text
        if self.cast_type == variant.INTEGER:
            return _integer(text)
        return float(text) if _DOUBLE.fullmatch(text) else None


def compile_comparison(message: wire.SingleColumnValueFilter, limits: Limits) -> Comparison:
    """Return the comparison of a message. Raises OTSParameterInvalid."""
    for required in _REQUIRED:
        if not message.HasField(required):
            raise invalid(f"Invalid filter: its {required} is missing or unknown.")
    name = _check_name(message.column_name, limits)
    comparator = message.comparator
    compare = _COMPARE.get(comparator)
    without_column = comparator == wire.CT_NOT_EXIST
    kind, operand = variant.NULL, _NOTHING
    if compare is not None:
        without_column = not message.filter_if_missing
        _check_value(message.column_name, message.column_value, limits)
        kind, operand = message.column_value[0], _operand(message.column_value)
    needle = b"\x03\x04" + len(name).to_bytes(4, "little") + name
    rule = _rule(message.value_trans_rule) if message.HasField("value_trans_rule") else None
    return Comparison(
        name, needle, compare, kind, operand, without_column, message.latest_version_only, rule
    )


def _check_name(name: str | bytes, limits: Limits) -> bytes:
    # The protobuf runtime returns bytes for a string that is not UTF-8.
    if isinstance(name, bytes):
        raise invalid(f"Invalid column name: '{name.decode('utf-8', 'replace')}'.")
    check_column_name(name, limits)
    return name.encode()


def _check_value(name: str, value: bytes, limits: Limits) -> None:
    variant.check(value)
    if value[0] not in _VALUES:
        raise invalid(f"Invalid filter: a value of type {variant.type_name(value)}.")
    size = variant.payload_size(value)
    if size > limits.attribute_bytes_max:
        raise invalid(
            f"The length of attribute column: '{name}' exceeds the "
            f"MaxLength:{limits.attribute_bytes_max} with CurrentLength:{size}."
        )


def _rule(message: wire.ValueTransferRule) -> Rule:
    regex: str | bytes = message.regex
    if isinstance(regex, bytes):
        raise invalid(f"Invalid regex '{regex.decode('utf-8', 'replace')}': it is not UTF-8.")
    cast_type = message.cast_type if message.HasField("cast_type") else wire.VT_STRING
    if cast_type not in (wire.VT_INTEGER, wire.VT_DOUBLE, wire.VT_STRING):
        raise invalid(
            f"Invalid cast_type: {wire.VariantType.Name(cast_type)}, "
            f"must be VT_INTEGER, VT_DOUBLE or VT_STRING."
        )
    return Rule(compile_regex(regex), int(cast_type))


def _operand(value: bytes) -> Operand:
    """Return the comparable value of a checked variant."""
    kind = value[0]
    if kind in (variant.STRING, variant.BLOB):
        return value[5:]
    if kind == variant.INTEGER:
        return int.from_bytes(value[1:], "little", signed=True)
    if kind == variant.BOOLEAN:
        return value[1]
    number = variant.decode(value)
    assert isinstance(number, float)
    return number


def _integer(text: bytes) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else None


def _key_value(key: bytes, name: bytes) -> bytes | None:
    """Return a key column's value from the key's wire bytes, or None if it is no key column.

    The key is our own: tag 01, then per column 03 04 len32 name 05 len32 value 0A checksum.
    """
    at = 1
    while at < len(key):
        start = at + 6
        middle = start + int.from_bytes(key[at + 2 : start], "little")
        end = middle + 5 + int.from_bytes(key[middle + 1 : middle + 5], "little")
        if key[start:middle] == name:
            return key[middle + 5 : end]
        at = end + 2
    return None
