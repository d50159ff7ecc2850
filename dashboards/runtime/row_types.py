"""Converts the variants of rows to values of their declared types."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import cast

from rowtide.core.values import variant
from rowtide.dashboards.fold.plan import ColumnSpec
from rowtide.dashboards.values.kinds import Value

__all__ = ["PickPlaces", "RowTypes", "pick_places"]

PickPlaces = Callable[[Sequence[bytes | None]], tuple[bytes | None, ...]]

KNOWN_MAX = 4096
"""Values of a column that are kept with what they convert to."""

_DOUBLE = struct.Struct("<Bd").unpack


class _Conversion(dict[bytes | None, Value]):
    """What stored values of a column convert to. A lookup converts a new one."""

    def __init__(self, column: ColumnSpec) -> None:
        super().__init__({None: None})
        self._convert = column.convert

    def __missing__(self, stored: bytes) -> Value:
        if len(self) >= KNOWN_MAX:
            self.clear()
            self[None] = None
        value = self[stored] = self._convert(variant.decode(stored))
        return value


def _convert_double(stored: bytes | None) -> Value:
    if stored is None:
        return None
    if stored[0] != variant.DOUBLE:
        raise ValueError
    value: float
    _, value = _DOUBLE(stored)
    return value


class RowTypes:
    """Converts rows of ``columns``."""

    def __init__(self, columns: Sequence[ColumnSpec]) -> None:
        self._convert = [
            _convert_double if column.word == "double" else _Conversion(column).__getitem__
            for column in columns
        ]

    def convert_row(self, row: Sequence[bytes | None]) -> tuple[Sequence[Value], Sequence[int]]:
        """Return the values of a row, and the places of those of another type, which are NULL."""
        try:
            return [convert(stored) for convert, stored in zip(self._convert, row)], ()  # noqa: B905 - as long, and twice as fast.
        except ValueError:
            return self._convert_apart(row)

    def _convert_apart(self, row: Sequence[bytes | None]) -> tuple[Sequence[Value], Sequence[int]]:
        values: list[Value] = []
        mistyped: list[int] = []
        for place, (convert, stored) in enumerate(zip(self._convert, row, strict=True)):
            try:
                values.append(convert(stored))
            except ValueError:
                values.append(None)
                mistyped.append(place)
        return values, mistyped


def pick_places(places: Sequence[int]) -> PickPlaces:
    """Return the function that returns some places of a row, as a tuple."""
    if len(places) > 1:
        return cast(PickPlaces, itemgetter(*places))
    return lambda row: tuple([row[place] for place in places])
