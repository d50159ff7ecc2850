"""Log records of one form, turned into wire rows without decoding their cells one by one.

Records have one form if they differ only in the data of key and cells, the version and the
checksums, and those have equal sizes. One unpack splits such a record's body, and one comparison of
the constant parts proves its form. The wire row is joined from the rest: texts have the same bytes
in log and wire, numbers are encoded again.

A form is learnt from a record that ``record.py`` has decoded. That module also decodes every record
without a known form, and rejects damaged ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, SequenceInfo
from rowtide.core.protocol.row_form import CELLS_MAX, SIZES, Forms, is_text, picker, seed, wire_head
from rowtide.core.records.avro import cell_head, count_log_bytes, key_head, read_long, write_long
from rowtide.core.records.record import PutBody, UpdateBody
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.crc8 import CELL_ENDS, ROW_ENDS, crc8

__all__ = ["FORMS", "RecordForm"]

DATA_BYTES_MAX = 512
_LONGEST = 10
"""Maximal bytes of a number in the log."""

_INT64 = Struct("<q")


class FormColumn(NamedTuple):
    """A column of the key, or a cell: the bytes before its data in log and wire."""

    logged: bytes
    logged_bytes: int
    wire: bytes
    seed: int
    kind: int


class RecordForm:
    """Puts of rows, or updates, that have one form. Every cell is a put, all of one version."""

    __slots__ = (
        "_cells",
        "_heads",
        "_integers",
        "_key_end",
        "_key_heads",
        "_key_integers",
        "_seeds",
        "_split",
        "_template",
        "_texts",
        "bytes",
    )

    def __init__(
        self,
        key: Sequence[FormColumn],
        cells: Sequence[FormColumn],
        version_bytes: int,
        last: bytes,
    ) -> None:
        """Derive the form of a body that ends with ``last``."""
        self._key_heads = tuple(column.logged for column in key)
        self._heads = (*(cell.logged for cell in cells), last)
        layout = [f"{len(c.logged)}s{c.logged_bytes}s" for c in key]
        layout += [f"{len(c.logged)}s{c.logged_bytes}s{version_bytes}sc" for c in cells]
        body = Struct("".join(layout) + f"{len(last)}s")
        self._split, self.bytes = body.unpack_from, body.size
        self._key_end = 2 * len(key)
        self._cells = len(cells)
        self._seeds = [column.seed for column in key]
        self._key_integers, self._integers = _integers(key), _integers(cells)
        texts = [2 * i + 1 for i in _texts(key)]
        texts += [self._key_end + 4 * i + 1 for i in _texts(cells)]
        self._texts = picker(texts)
        parts = [part for column in key for part in (column.wire, b"", b"")]
        parts += [part for cell in cells for part in (cell.wire, b"", b"", b"")]
        parts[0] = HEADER + b"\x01" + parts[0]
        parts[3 * len(key)] = b"\x02" + parts[3 * len(key)]
        self._template = [*parts, b"", b""]

    @classmethod
    def of(
        cls, names: Sequence[bytes], body: PutBody | UpdateBody, encoded: bytes
    ) -> RecordForm | None:
        """Return the form of a record with this body, or None if it has none."""
        cells = body.cells
        if not 0 < len(cells) <= CELLS_MAX or body.before is not None:
            return None
        version = cells[0].version_ms
        if version is None or any(not _is_plain_put(cell, version) for cell in cells):
            return None
        if any(value[0] not in SIZES for value in body.key):
            return None
        columns = [_column(name, value) for name, value in zip(names, body.key, strict=True)]
        # The bytes between two columns belong to the head of the second one.
        counted = write_long(len(columns))
        columns[0] = columns[0]._replace(logged=encoded[:1] + counted + columns[0].logged)
        found = [_cell(cell) for cell in cells]
        found[0] = found[0]._replace(logged=b"\x00" + write_long(len(cells)) + found[0].logged)
        version_bytes = 1 + len(write_long(version))
        known = sum(len(c.logged) + c.logged_bytes for c in (*columns, *found))
        last = encoded[known + (version_bytes + 1) * len(cells) :]
        if not last:
            return None
        return cls(columns, found, version_bytes, last)

    def wire_row(self, record: bytes, at: int, stamp: int) -> bytes | None:
        """Return the stream's row of the body at ``at``, or None if it has another form."""
        parts = self._split(record, at)
        key_end, cells = self._key_end, self._cells
        if parts[0:key_end:2] != self._key_heads or parts[key_end::4] != self._heads:
            return None
        versions = parts[key_end + 2 :: 4]
        if versions.count(versions[0]) < cells:
            return None
        key, data = list(parts[1:key_end:2]), list(parts[key_end + 1 :: 4])
        if not is_text(self._texts(parts)):
            return None
        try:
            tail = _wire_version(versions[0])
            for i in self._integers:
                data[i] = _SMALL.get(data[i]) or _wire_integer(data[i])
            for i in self._key_integers:
                key[i] = _wire_integer(key[i])
        except ValueError:
            return None
        checks = bytes(map(crc8, key, self._seeds))
        checksums = parts[key_end + 3 :: 4]
        row = self._template.copy()
        key_parts = 3 * len(key)
        row[1:key_parts:3] = key
        row[2:key_parts:3] = map(CELL_ENDS.__getitem__, checks)
        row[key_parts + 1 : -2 : 4] = data
        row[key_parts + 2 : -2 : 4] = [tail] * cells
        row[key_parts + 3 : -2 : 4] = checksums
        row[-2] = plainbuffer.extension(SequenceInfo(0, stamp, 0))
        row[-1] = ROW_ENDS[plainbuffer.row_checksum(crc8(checks), b"".join(checksums))]
        return b"".join(row)


_SMALL = {write_long(number): _INT64.pack(number) for number in range(-64, 64)}
"""The numbers that take one byte in the log."""

FORMS: Forms[RecordForm] = Forms()
"""Forms by the key's column names, the schema's fingerprint and the size of the body."""


def _is_plain_put(cell: Cell, version: int) -> bool:
    name, op, value, version_ms, _ = cell
    return (
        op == PUT
        and version_ms == version
        and value[0] in SIZES
        and len(value) <= DATA_BYTES_MAX
        and len(name) <= DATA_BYTES_MAX
    )


def _column(name: bytes, value: bytes) -> FormColumn:
    kind, size = value[0], variant.payload_size(value)
    head = key_head(kind, size)
    return FormColumn(
        head, count_log_bytes(value), wire_head(name, kind, size), seed(name, kind, size), kind
    )


def _cell(cell: Cell) -> FormColumn:
    name, _, value, _, _ = cell
    kind, size = value[0], variant.payload_size(value)
    return FormColumn(
        cell_head(name, kind, size), count_log_bytes(value), wire_head(name, kind, size), 0, kind
    )


def _texts(columns: Sequence[FormColumn]) -> list[int]:
    return [i for i, column in enumerate(columns) if column.kind == variant.STRING]


def _integers(columns: Sequence[FormColumn]) -> list[int]:
    return [i for i, column in enumerate(columns) if column.kind == variant.INTEGER]


def _wire_integer(logged: bytes) -> bytes:
    """Return the eight bytes of a number in the log's encoding. Raises ``ValueError``."""
    number, end = read_long(logged + bytes(_LONGEST), 0)
    if end != len(logged):
        raise ValueError("not one number")
    return _INT64.pack(number)


@lru_cache(256)
def _wire_version(logged: bytes) -> bytes:
    """Return a version as it follows a value, with the checksum's tag.

    Cached: rows written together share it.
    """
    if logged[0] != 2:
        raise ValueError("no version")
    return b"\x07" + _wire_integer(logged[1:]) + b"\x0a"
