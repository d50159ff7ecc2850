"""Packing of a source's rows: the form of a row, and its values in that form.

A form consists of columns and types (``core/rows/source_form.py``). Rows with the same
columns and the same Python types share a form. A column without a value is left out of a
whole row. A row that can have no form, or whose form is new, is encoded cell by cell by
the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from rowtide.connectors.rows import SourceRow
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import picker
from rowtide.core.rows.source_form import TEXT_BYTES_MAX, SourceForm, layout
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected

__all__ = ["Packing", "forget", "packing_of"]

PACKINGS_KNOWN = 4096

_KINDS: dict[type, int] = {
    int: variant.INTEGER,
    float: variant.DOUBLE,
    str: variant.STRING,
    bytes: variant.BLOB,
}
_TEXTS = (str, bytes)
_NOTHING = type(None)
_EMPTY: dict[type, bytes] = {
    **{kind: variant.encode(kind()) for kind in _KINDS},
    _NOTHING: variant.V_AUTO_INCREMENT,
}
"""A value of each type. A key column without a value is one that the shard assigns."""

_Column = tuple[str, type]


class Packing:
    """Packs rows whose columns have these types."""

    def __init__(self, key: Sequence[_Column], columns: Sequence[_Column]) -> None:
        """Take a row's columns in their order. Raises ``ValueError`` if they can have no form."""
        kept = [column for column in columns if column[1] is not _NOTHING]
        kept.sort(key=lambda column: column[0].encode())
        self.sample = plainbuffer.HEADER + plainbuffer.encode_row(_empty(key), _cells(kept))
        """The form as it is written in a request."""
        try:
            SourceForm(plainbuffer.decode_row(self.sample))
        except Rejected as error:
            raise ValueError(error.message) from error
        place_of = {name: len(key) + place for place, (name, _) in enumerate(columns)}
        given = [column for column in key if column[1] is not _NOTHING]
        ordered = [(place, kind) for place, (_, kind) in enumerate(key) if kind is not _NOTHING]
        ordered += [(place_of[name], kind) for name, kind in kept]
        self._numbers = picker([place for place, kind in ordered if kind not in _TEXTS])
        self._texts = picker([place for place, kind in ordered if kind in _TEXTS])
        kinds = [_KINDS[kind] for _, kind in (*given, *kept)]
        self._head = Struct(layout(kinds, number="")).pack

    def pack(self, row: SourceRow) -> bytes | None:
        """Return the row's values, or None if a text is too long.

        Raises ``ValueError``, and what ``struct`` raises for a value out of range.
        """
        _, key, columns, _, _, _ = row
        assert columns is not None, "a delete has no form"
        values = (*[value for _, value in key], *columns.values())
        texts = [t.encode() if type(t) is str else t for t in self._texts(values)]
        lengths = [len(text) for text in texts]
        if lengths and max(lengths) > TEXT_BYTES_MAX:
            return None
        return b"".join((self._head(*lengths, *self._numbers(values)), *texts))


_packings: dict[Any, Packing | bool] = {}
"""By names and types of key and columns. True: seen once. False: there can be no form."""


def packing_of(row: SourceRow) -> Packing | None:
    """Return the packing of a row, or None if it has none."""
    _, key, columns, whole, _, _ = row
    if not columns:
        return None
    types = tuple(map(type, columns.values()))
    met = (tuple(columns), types, tuple([(name, type(value)) for name, value in key]), whole)
    found = _packings.get(met)
    if type(found) is Packing:
        return found
    if found is None:
        if len(_packings) >= PACKINGS_KNOWN:
            _packings.clear()
        _packings[met] = whole or _NOTHING not in types
    elif found:
        try:
            made = _packings[met] = Packing(met[2], list(zip(columns, types, strict=True)))
        except (ValueError, KeyError):
            _packings[met] = False
        else:
            return made
    return None


def forget() -> None:
    """Forget every form."""
    _packings.clear()


def _empty(columns: Sequence[_Column]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), _EMPTY[kind]) for name, kind in columns]


def _cells(columns: Sequence[_Column]) -> list[Cell]:
    return [plainbuffer.put_cell(name, value, None) for name, value in _empty(columns)]
