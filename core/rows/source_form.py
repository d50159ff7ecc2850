"""A source's rows without what they have in common: names, types and tags.

A request of a source contains each form once, as a PlainBuffer row in which only the types of
values matter. A row of that form is its values, one after another, numbers little-endian:

    2 bytes for each text (STRING, BLOB): its length
    8 bytes for each number: INTEGER or DOUBLE
    the texts

In each part the key comes first, then the cells in the order of their names. Checksums of cells are
calculated here; during transport the request's checksum (the body's MD5) protects them. A key
column that the form has as AUTO_INCREMENT takes no bytes of a row: the shard assigns it.

An error in a form is raised for every row that has it. This module decodes rows. It does not know
which keys, names and sizes a table allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from struct import Struct
from struct import error as StructError
from typing import Any

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import KeyColumns, RowChange
from rowtide.core.protocol.row_form import SIZES, PackedCells, RowForm, are_finite, is_text, picker
from rowtide.core.values import variant
from rowtide.core.values.crc8 import CELL_ENDS, STEP, crc8
from rowtide.core.values.errors import Rejected, invalid

__all__ = ["KEY_KINDS", "TEXT_BYTES_MAX", "SourceForm", "find_form", "first_key_value", "layout"]

KEY_KINDS = (variant.INTEGER, variant.STRING, variant.BLOB)
TEXT_BYTES_MAX = 512
"""Longest text of the cells. Rows with longer ones are sent as PlainBuffer."""

FORMS_KNOWN = 1024
SAMPLE_BYTES_MAX = 64 * 1024
LENGTHS_KNOWN = 512
LENGTHS_KNOWN_ALL = 8192
"""Bounds of the cache: forms, bytes of a form's sample, combinations of text lengths of one form
and of all. A form of 128 cells with its lengths takes 15 KB.
"""

_LENGTH = Struct("<I").pack

_HEAD_SIZES = {variant.INTEGER: 9, variant.AUTO_INCREMENT: 1}
"""Sizes of the variants of a key that all have one size."""


def layout(kinds: Sequence[int], *, number: str = "8s") -> str:
    """Return the ``struct`` format of the part before the texts, for such columns.

    ``number`` is the format of a number: its bytes, or its type if it is empty.
    """
    lengths = sum(SIZES[kind] < 0 for kind in kinds)
    numbers = [number or "qd"[kind] for kind in kinds if SIZES[kind] > 0]
    return "<" + "H" * lengths + "".join(numbers)


class SourceForm:
    """What a source's rows of one form have in common."""

    def __init__(self, row: RowChange) -> None:
        """Derive the form from a row. Raises ``Rejected``."""
        kinds = tuple(cell.variant[0] if cell.variant else -1 for cell in row.cells)
        whole = None if row.deleted or not _is_key(row.key) else RowForm.of(list(row.cells))
        if whole is None or whole.ordered is not whole:
            raise invalid("Invalid row form: it is no key and cells of a form, in their order.")
        self.key, self.cells = row.key, row.cells
        """Columns of the key and cells; only the types of their values matter."""
        texts = [place for place, kind in enumerate(kinds) if SIZES[kind] < 0]
        self._of_no_texts, self._text_places = whole.resize(texts, [0] * len(texts)), texts
        self._forms: dict[tuple[int, ...], RowForm] = {}
        key_kinds = [value[0] for _, value in row.key if value != variant.V_AUTO_INCREMENT]
        head = Struct(layout([*key_kinds, *kinds]))
        self._head, self._head_bytes = head.unpack_from, head.size
        self._key_texts = sum(SIZES[kind] < 0 for kind in key_kinds)
        self._texts = self._key_texts + len(texts)
        places = _places([*key_kinds, *kinds], self._texts)
        self._cells_of = picker(places[len(key_kinds) :])
        given_at = iter(places)
        self._key = [
            (_KeyColumn(name, value[0]), 0 if value == variant.V_AUTO_INCREMENT else next(given_at))
            for name, value in row.key
        ]

    def read(self, row: bytes) -> tuple[KeyColumns, PackedCells]:
        """Return a row's key and its cells, fully checked. Raises ``Rejected``."""
        parts = self._parts(row)
        lengths = parts[self._key_texts : self._texts]
        form = self._forms.get(lengths) or self._form(lengths)
        payloads = self._cells_of(parts)
        if self._texts and not is_text(form.texts(payloads)):
            raise _bad_row("a text is not UTF-8")
        if form.doubles is not None and not are_finite(doubles := form.doubles(payloads)):
            for double in doubles:
                variant.check_finite(bytes((variant.DOUBLE,)) + double)
        checksums = bytes(map(crc8, payloads, form.seeds))
        return self._read_key(parts), PackedCells(form, payloads, checksums)

    def first_key_value(self, row: bytes) -> bytes:
        """Return the first key column's variant. Raises ``Rejected``."""
        column, place = self._key[0]
        return column.value(self._parts(row)[place])

    def _parts(self, row: bytes) -> tuple[Any, ...]:
        """Return a row's text lengths, its numbers' data and its texts."""
        try:
            parts = self._head(row)
        except StructError as error:
            raise _bad_row("it breaks off") from error
        at = self._head_bytes
        if self._texts:
            texts = []
            for length in parts[: self._texts]:
                texts.append(row[at : at + length])
                at += length
            parts += tuple(texts)
        if at != len(row):
            raise _bad_row(f"it has {len(row)} bytes, not {at}")
        return parts

    def _read_key(self, parts: tuple[Any, ...]) -> KeyColumns:
        key = KeyColumns()
        pieces = [b"\x01"]
        state = 0
        for column, place in self._key:
            value = column.value(parts[place])
            checksum = crc8(value, column.seed)
            pieces += (column.head or column.head_of(value), value, CELL_ENDS[checksum])
            state = STEP[state ^ checksum]
            key.append((column.name, value))
        key.piece, key.state = b"".join(pieces), state
        return key

    def _form(self, lengths: tuple[int, ...]) -> RowForm:
        """Return the form of cells whose texts have these lengths."""
        if max(lengths, default=0) > TEXT_BYTES_MAX:
            raise _bad_row(f"a text has more than {TEXT_BYTES_MAX} bytes")
        if len(self._forms) >= LENGTHS_KNOWN:
            self._forms.clear()
        _KNOWN.learns_lengths()
        form = self._forms[lengths] = self._of_no_texts.resize(self._text_places, lengths)
        return form


class _KeyColumn:
    """A column of the key: the bytes before its values, and the checksum up to there."""

    def __init__(self, name: bytes, kind: int) -> None:
        self.name = name
        self.seed = crc8(name)
        self._kind = kind
        self._tags = b"\x03\x04" + _LENGTH(len(name)) + name + b"\x05"
        self.head = self._tags + _LENGTH(_HEAD_SIZES[kind]) if kind in _HEAD_SIZES else b""
        """Empty if it depends on the value."""

    def value(self, data: bytes) -> bytes:
        """Return a value's variant. Raises ``Rejected`` for a text that is not UTF-8."""
        if self.head:
            return b"\x00" + data if self._kind == variant.INTEGER else variant.V_AUTO_INCREMENT
        value = bytes((self._kind,)) + _LENGTH(len(data)) + data
        if self._kind == variant.STRING and not data.isascii():
            variant.check(value)
        return value

    def head_of(self, value: bytes) -> bytes:
        """Return the bytes before a value."""
        return self._tags + _LENGTH(len(value))


class Known:
    """Cached forms by their sample rows; the cache is bounded."""

    def __init__(self) -> None:
        self.forms: dict[bytes, SourceForm] = {}
        self._lengths = 0

    def form(self, sample: bytes) -> SourceForm:
        """Return the form of a request's sample row. Raises ``Rejected``."""
        form = self.forms.get(sample)
        if form is None:
            form = SourceForm(plainbuffer.decode_row(sample))
            if len(sample) <= SAMPLE_BYTES_MAX:
                if len(self.forms) >= FORMS_KNOWN:
                    self.forget()
                self.forms[sample] = form
        return form

    def learns_lengths(self) -> None:
        """Make room in the cache for another combination of text lengths."""
        if self._lengths >= LENGTHS_KNOWN_ALL:
            self.forget()
        self._lengths += 1

    def forget(self) -> None:
        """Drop every form. A request in progress keeps its own."""
        self.forms.clear()
        self._lengths = 0


_KNOWN = Known()


def find_form(forms: Sequence[bytes], number: int) -> SourceForm:
    """Return the form with a row's number in its request. Raises ``Rejected``."""
    if not 0 < number <= len(forms):
        raise invalid(f"Invalid row form: there is no form {number}.")
    return _KNOWN.form(forms[number - 1])


def first_key_value(row: bytes, number: int, forms: Sequence[bytes]) -> bytes | None:
    """Return the first key column's variant of a row, unchecked; None if it cannot be read.

    ``number`` is the number of its form in the request, 0 for PlainBuffer.
    """
    if not number:
        return plainbuffer.first_key_value(row)
    try:
        return find_form(forms, number).first_key_value(row)
    except Rejected:
        return None


def _bad_row(what: str) -> Rejected:
    return invalid(f"Invalid row of a form: {what}.")


def _is_key(key: Sequence[tuple[bytes, bytes]]) -> bool:
    kinds = [value[0] for _, value in key if value != variant.V_AUTO_INCREMENT]
    return bool(kinds) and all(kind in KEY_KINDS for kind in kinds)


def _places(kinds: Sequence[int], texts: int) -> list[int]:
    """Return the index of each column's data: after the texts' lengths, numbers come first."""
    numbers_at, texts_at = count(texts), count(len(kinds))
    return [next(texts_at if SIZES[kind] < 0 else numbers_at) for kind in kinds]
