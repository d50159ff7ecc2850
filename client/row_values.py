"""Rows as dictionaries: the values a column takes, and how a row is split into key and columns.

A value is an ``int`` of 64 bits, a ``float``, a ``bool``, a ``str`` or ``bytes``; reads return the
same type. Cheap checks of the server are made here too and raise the server's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rowtide.client.wire_row import Put, Special
from rowtide.core.protocol.plainbuffer import RowChange
from rowtide.core.values.errors import Rejected, invalid, invalid_key
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_column_name
from rowtide.core.values.variant import Scalar
from rowtide.core.values.variant import decode as decode_variant

__all__ = [
    "AUTO_INCREMENT",
    "INF_MAX",
    "INF_MIN",
    "Input",
    "KeyInput",
    "KeyPairs",
    "RowDict",
    "RowInput",
    "TableKey",
    "Versioned",
    "cells_of",
    "check_columns",
    "fill_bound",
    "key_pairs",
    "newest",
    "read_texts",
    "split_row",
    "to_scalar",
]

INF_MIN = Special.INF_MIN
"""In a bound of a range: below every value."""

INF_MAX = Special.INF_MAX
"""In a bound of a range: above every value."""

AUTO_INCREMENT = Special.AUTO_INCREMENT
"""In a key: the server assigns the number. As the type of a key column: the server may assign it.
"""

INT64 = range(-(2**63), 2**63)


class Versioned(NamedTuple):
    """A value at a version, in milliseconds since 1970."""

    value: Scalar
    version_ms: int


RowDict = dict[str, Scalar]
"""A row as read: the key's columns in their order, then the others by name."""

Input = Scalar | bytearray | memoryview
RowInput = Mapping[str, Input | Versioned | Special]
"""A row to be written: key and columns; a column may be ``Versioned``."""

KeyInput = Mapping[str, Input | Special]
KeyPairs = list[tuple[str, Scalar | Special]]


class TableKey(NamedTuple):
    """The names of a table's key columns in order, and the one that the server may number."""

    names: tuple[str, ...]
    auto: str | None


def to_scalar(name: str, value: object) -> Scalar:
    """Return a protocol value. Raises ``TypeError``, or ``Rejected`` if it is too large."""
    if isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        if value not in INT64:
            raise invalid(f"Column '{name}': {value} does not fit 64 bits.")
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    kind = type(value).__name__
    raise TypeError(f"column '{name}' takes int, float, bool, str or bytes, not {kind}")


def split_row(
    key: TableKey, row: RowInput, limits: Limits, *, assign: bool = False
) -> tuple[KeyPairs, list[Put]]:
    """Return a row's key and its other columns. ``assign``: the server may number the key."""
    if assign and key.auto is not None and key.auto not in row:
        row = {**row, key.auto: AUTO_INCREMENT}
    pairs = key_pairs(key, {name: row[name] for name in key.names if name in row}, limits)
    names = set(key.names)
    puts = [_put(name, value) for name, value in row.items() if name not in names]
    check_columns(((put.name, put.value) for put in puts), limits)
    if len(puts) > limits.attributes_per_write_max:
        raise Rejected(
            "OTSOutOfColumnCountLimit",
            f"The number of columns from the request exceeds the limit, limit count: "
            f"{limits.attributes_per_write_max}, column count: {len(puts)}.",
        )
    return pairs, puts


def _put(name: str, value: object) -> Put:
    if isinstance(value, Versioned):
        return Put(name, to_scalar(name, value.value), value.version_ms)
    return Put(name, to_scalar(name, value))


def key_pairs(
    key: TableKey, given: Mapping[str, object], limits: Limits, *, whole: bool = True
) -> KeyPairs:
    """Return a key in the table's order. Without ``whole`` the last columns may be missing."""
    unknown = [name for name in given if name not in key.names]
    if unknown:
        raise invalid_key(
            f"'{unknown[0]}' is no key column: the table's key is {', '.join(key.names)}."
        )
    wanted = key.names if whole else key.names[: len(given)]
    missing = [name for name in wanted if name not in given]
    if missing:
        raise invalid_key(
            f"The key column '{missing[0]}' is missing: the table's key is {', '.join(key.names)}."
        )
    pairs: KeyPairs = []
    for name in wanted:
        value = given[name]
        pairs.append((name, value if isinstance(value, Special) else to_scalar(name, value)))
        if (size := _size(pairs[-1][1])) > limits.key_value_bytes_max:
            raise _too_long("primary key", name, limits.key_value_bytes_max, size)
    return pairs


def fill_bound(key: TableKey, given: KeyInput, rest: Special, limits: Limits) -> KeyPairs:
    """Return a bound of a range, with ``rest`` for the key columns that are missing."""
    pairs = key_pairs(key, given, limits, whole=False)
    return pairs + [(name, rest) for name in key.names[len(pairs) :]]


def check_columns(columns: Iterable[tuple[str, object]], limits: Limits) -> None:
    """Raise the server's error for a bad column name or a value that is too long."""
    for name, value in columns:
        check_column_name(name, limits)
        if (size := _size(value)) > limits.attribute_bytes_max:
            raise _too_long("attribute", name, limits.attribute_bytes_max, size)


def _size(value: object) -> int:
    if isinstance(value, str):
        # Encoded only if it may be too long: a character has four bytes at most.
        return len(value.encode()) if len(value) > 256 else len(value)
    return len(value) if isinstance(value, bytes) else 8


def _too_long(kind: str, name: str, most: int, size: int) -> Rejected:
    return invalid(
        f"The length of {kind} column: '{name}' exceeds the MaxLength:{most} with "
        f"CurrentLength:{size}."
    )


def newest(row: RowChange) -> RowDict:
    """Return a row of an answer with the newest version of each column."""
    found = {name.decode(): decode_variant(value) for name, value in row.key}
    for cell in row.cells:  # The newest version of a column comes first.
        found.setdefault(cell.name.decode(), decode_variant(cell.variant))
    return found


def read_texts(text: str) -> list[str] | None:
    """Return the texts of a JSON array of texts, as lists are stored; None for other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else None


def cells_of(row: RowChange) -> dict[str, list[Versioned]]:
    """Return the versions of each column of an answer's row, the newest first."""
    found: dict[str, list[Versioned]] = {}
    for cell in row.cells:
        value = Versioned(decode_variant(cell.variant), cell.version_ms or 0)
        found.setdefault(cell.name.decode(), []).append(value)
    return found
