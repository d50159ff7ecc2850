"""A source's rows as the bytes of requests that write them.

A row is a part of a BulkImport: kind, cells, position, time. Most rows are packed by a
form that the request has once (``core/rows/source_form.py``): only their values are
written. Other rows are PlainBuffer with the checksums that the store keeps. These are
rows with deletes of columns, long texts, or values that are neither numbers nor texts,
and all rows of a small request. The encoding is written by hand, because it decides the
speed of a source. Tests compare its bytes with those of the generated classes.

Rows may be encoded in several threads at once. Caches are only added to, or cleared as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime.source_packing import Packing, packing_of
from rowtide.connectors.sources.source import RowRefused
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.crc8 import CELL_ENDS, ROW_ENDS, STEP, crc8
from rowtide.core.values.errors import invalid
from rowtide.core.values.variant import Scalar
from rowtide.core.values.varint import varint

__all__ = ["EncodedRows", "SourceRequest", "encode_source_row", "requests"]

ROWS_MAX = 4000
BYTES_MAX = 2 * 1024 * 1024
"""Bytes of rows in one request. The next one is encoded while the store works on it."""

FIRST_ROWS_MAX = 2000
"""Rows of the first request, unless it is encoded ahead: the store has nothing to do meanwhile."""

PACKED_ROWS_MIN = 8
"""Least rows of a request that packs rows: for fewer, a form costs as much as it saves."""

COLUMNS_KNOWN = 4096
TEXT_BYTES_KNOWN = 256
"""Columns, and lengths of texts, for which the bytes before a value are cached."""

FORMS_MAX = 64
"""Forms in one request."""

_PUT, _UPDATE, _DELETE = (
    b"\x08" + bytes((kind,)) + b"\x12" for kind in (pb.PUT, pb.UPDATE, pb.DELETE)
)
_FORM = b"\xd8\x3e"  # Field 1003, a number.
_FORMS = b"\xda\x3e"  # Field 1003 of the request, bytes.
_POSITION = b"\xca\x3e"  # Field 1001, bytes.
_TIME = b"\xd0\x3e"  # Field 1002, a number.
_SOURCE = b"\xca\x3e"  # Field 1001 of the request, a string.

_varint = lru_cache(4096)(varint)
"""Cached for sizes, and for times that many rows share."""

_LEAVE_OUT, _REMOVE, _ASSIGN = range(3)
"""What a column without a value means: nothing, a delete, a column of the key to assign."""

_LENGTH = Struct("<I").pack
_INTEGER = Struct("<q").pack
_DOUBLE = Struct("<d").pack


class SourceRequest(NamedTuple):
    """A request for one table, and its rows."""

    body: bytes
    rows: Sequence[SourceRow]


class EncodedRows(list[SourceRow]):
    """Rows of one table with the requests that write them."""

    def __init__(self, source: str, table: str, rows: Sequence[SourceRow]) -> None:
        super().__init__(rows)
        self.table = table
        self._made: list[SourceRequest] = []
        self._refused: RowRefused | None = None
        try:
            self._made.extend(requests(source, table, rows, first_rows=ROWS_MAX))
        except RowRefused as error:
            self._refused = error  # Keep the requests before it.

    def requests(self) -> Iterator[SourceRequest]:
        """Yield and raise what the function ``requests`` did."""
        yield from self._made
        if self._refused is not None:
            raise self._refused


def requests(
    source: str, table: str, rows: Sequence[SourceRow], *, first_rows: int = FIRST_ROWS_MAX
) -> Iterator[SourceRequest]:
    """Yield the requests that write a table's rows. Each is encoded when it is needed.

    The first has at most ``first_rows`` rows. Raises ``RowRefused`` for a row with a
    value that can't be encoded, after the requests before it.
    """
    made = _Request(source, table, packs=len(rows) >= PACKED_ROWS_MIN)
    rows_max = first_rows
    for row in rows:
        try:
            encoded = made.encode(row)
        except (ValueError, StructError, TypeError) as error:
            if made.rows:
                yield made.finish()
            why = f"A value of table '{table}' can't be encoded: {error}."
            raise RowRefused(row, invalid(why)) from error
        if made.rows and (made.size + len(encoded) > BYTES_MAX or len(made.rows) == rows_max):
            yield made.finish()
            rows_max = ROWS_MAX
            encoded = made.encode(row)  # Its form has a new number, or none yet.
        made.add(row, encoded)
    if made.rows:
        yield made.finish()


class _Request:
    """A request under construction. ``size`` counts the bytes of its rows."""

    def __init__(self, source: str, table: str, *, packs: bool) -> None:
        name = table.encode()
        self._head = b"\x0a" + _varint(len(name)) + name
        name = source.encode()
        self._tail = _SOURCE + _varint(len(name)) + name
        self._packs = packs
        self._begin()

    def _begin(self) -> None:
        self.rows: list[SourceRow] = []
        self.size = 0
        self._parts = [self._head]
        self._forms: dict[Packing, bytes] = {}
        """The packings in the order of their numbers, each with its encoded number field."""

    def encode(self, row: SourceRow) -> bytes:
        """Return a row as a part of this request. Raises ``ValueError`` and ``struct.error``."""
        packing = packing_of(row) if self._packs else None
        if packing is None:
            return encode_source_row(row)
        number = self._forms.get(packing)
        if number is None:
            if len(self._forms) == FORMS_MAX:
                return encode_source_row(row)
            number = self._forms[packing] = _FORM + _varint(len(self._forms) + 1)
        cells = packing.pack(row)
        if cells is None:
            return encode_source_row(row)
        return _part(_PUT if row.whole else _UPDATE, cells, row) + number

    def add(self, row: SourceRow, encoded: bytes) -> None:
        """Add a row."""
        self._parts += (b"\x12", _varint(len(encoded)), encoded)
        self.size += len(encoded)
        self.rows.append(row)

    def finish(self) -> SourceRequest:
        """Return the request and start the next one."""
        forms = [(_FORMS, _varint(len(p.sample)), p.sample) for p in self._forms]
        body = b"".join((*self._parts, self._tail, *chain.from_iterable(forms)))
        made = SourceRequest(body, self.rows)
        self._begin()
        return made


def encode_source_row(row: SourceRow) -> bytes:
    """Return a row as a part of a request. Raises ``ValueError`` and what ``struct`` raises."""
    _, key, columns, whole, _, _ = row
    parts = [b"\x75\x00\x00\x00\x01"]
    checksums = bytearray()
    _add(parts, checksums, key, of_none=_ASSIGN)
    if columns is None:
        kind = _DELETE
        parts.append(b"\x08")
    else:
        kind = _PUT if whole else _UPDATE
        begin = len(parts)
        parts.append(b"\x02")
        _add(parts, checksums, columns.items(), of_none=_LEAVE_OUT if whole else _REMOVE)
        if len(parts) == begin + 1:
            parts.pop()
    parts.append(ROW_ENDS[STEP[crc8(checksums) ^ (columns is None)]])
    return _part(kind, b"".join(parts), row)


def _part(kind: bytes, cells: bytes, row: SourceRow) -> bytes:
    """Return a row's fields except its form."""
    position = row.position
    return b"".join(
        (
            kind,
            _varint(len(cells)),
            cells,
            _POSITION,
            _varint(len(position)),
            position,
            _TIME,
            _varint(row.time_ms),
        )
    )


def _add(
    parts: list[bytes],
    checksums: bytearray,
    cells: Iterable[tuple[str, Scalar | None]],
    *,
    of_none: int,
) -> None:
    """Add cells and their checksums. ``of_none`` says what a column without a value means."""
    for name, value in cells:
        kind = type(value)
        column = _COLUMNS.get(name) or _column(name)
        if kind is str:
            data = value.encode()  # type: ignore[union-attr]
            head, seed = column.texts.get(len(data)) or column.text(len(data))
        elif kind is int:
            head, seed = column.integer
            data = _INTEGER(value)
        elif kind is float:
            head, seed = column.double
            data = _DOUBLE(value)
        elif value is not None:
            encoded = variant.encode(value)
            data = encoded[1:]
            head, seed = column.head(encoded[0], len(data))
        elif of_none == _ASSIGN:
            head, seed = column.head(variant.AUTO_INCREMENT, 0)
            data = b""
        elif of_none == _REMOVE:
            parts.append(column.deleted)
            checksums.append(column.deleted_checksum)
            continue
        else:
            continue
        checksum = crc8(data, seed)
        checksums.append(checksum)
        parts += (head, data, CELL_ENDS[checksum])


_Head = tuple[bytes, int]
"""The bytes before a value's data in a cell, and the cell's checksum so far."""


class _Column:
    """A column by name: the bytes that begin its cells, and a delete of it."""

    def __init__(self, name: str) -> None:
        encoded = name.encode()
        self._tags = b"\x03\x04" + _LENGTH(len(encoded)) + encoded + b"\x05"
        self._checksum = crc8(encoded)
        self.integer = self.head(variant.INTEGER, 8)
        self.double = self.head(variant.DOUBLE, 8)
        self.texts: dict[int, _Head] = {}
        """Heads of short texts, by length."""
        gone = plainbuffer.delete_cell(encoded, None)
        self.deleted, self.deleted_checksum = plainbuffer.cell_piece(gone), gone.checksum

    def head(self, kind: int, size: int, inner: bytes = b"") -> _Head:
        """Return the bytes before a value's data. ``inner`` is the length inside the value."""
        typed = bytes((kind,)) + inner
        return self._tags + _LENGTH(len(typed) + size) + typed, crc8(typed, self._checksum)

    def text(self, size: int) -> _Head:
        """Return the bytes before a text of ``size`` bytes."""
        head = self.head(variant.STRING, size, _LENGTH(size))
        if size < TEXT_BYTES_KNOWN:
            self.texts[size] = head
        return head


_COLUMNS: dict[str, _Column] = {}


def _column(name: str) -> _Column:
    if len(_COLUMNS) >= COLUMNS_KNOWN:
        _COLUMNS.clear()
    column = _COLUMNS[name] = _Column(name)
    return column
