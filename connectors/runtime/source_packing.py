"""How a source's rows are packed: which form a row has, and its values as that form has them.

A form is of columns and types (``core/rows/source_form.py``). Rows of the same columns with values
of the same Python types have one; a whole row's column without a value is left out of it. A row
that can have no form, or has one that was not met before, is left to whoever encodes it cell by
cell.
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
from rowtide.core.values.variant import Scalar

__all__ = ["Packing", "forget", "packing_of"]

PACKINGS_KNOWN = 4096

_KINDS: dict[type, int] = {
    int: variant.INTEGER,
    float: variant.DOUBLE,
    str: variant.STRING,
    bytes: variant.BLOB,
}
_EMPTY: dict[type, Scalar] = {int: 0, float: 0.0, str: "", bytes: b""}
_TEXTS = (str, bytes)
_NOTHING = type(None)

_Column = tuple[str, type]


class Packing:
    """Packs rows that have values of these types for these columns."""

    def __init__(self, key: Sequence[_Column], columns: Sequence[_Column]) -> None:
        """Take a row's columns as they come. Raises ``ValueError`` for what can have no form."""
        kept = [column for column in columns if column[1] is not _NOTHING]
        kept.sort(key=lambda column: column[0].encode())
        self.sample = plainbuffer.HEADER + plainbuffer.encode_row(_empty(key), _cells(kept))
        """The form as a request gives it."""
        try:
            SourceForm(plainbuffer.decode_row(self.sample))
        except Rejected as error:
            raise ValueError(error.message) from error
        place_of = {name: len(key) + place for place, (name, _) in enumerate(columns)}
        ordered = [(place, kind) for place, (_, kind) in enumerate(key)]
        ordered += [(place_of[name], kind) for name, kind in kept]
        self._numbers = picker([place for place, kind in ordered if kind not in _TEXTS])
        self._texts = picker([place for place, kind in ordered if kind in _TEXTS])
        kinds = [_KINDS[kind] for _, kind in (*key, *kept)]
        self._head = Struct(layout(kinds, number="")).pack

    def packed(self, row: SourceRow) -> bytes | None:
        """Return the row's values, or None where a text is too long.

        Raises ``ValueError`` and what ``struct`` raises for a value that has no place.
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
"""By names and types of key and columns. True: rows were met once; False: they can have no form."""


def packing_of(row: SourceRow) -> Packing | None:
    """Return what packs a row, or None where nothing does."""
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
    return [(name.encode(), variant.encode(_EMPTY[kind])) for name, kind in columns]


def _cells(columns: Sequence[_Column]) -> list[Cell]:
    return [plainbuffer.put_cell(name, value, None) for name, value in _empty(columns)]
