"""Updates a narrow row by replacing cells in its stored bytes, at any offsets.

A patch (``row_patch.py``) knows the offsets of a row's cells while rows of its form follow each
other. If texts vary in length, they do not. Such rows are walked: each cell has its length, so
three numbers of each cell give offsets, versions and checksums. Changed cells are inserted, others
are copied in runs.

The fold (``fold.py``) does everything else: several versions of a column, a version older than the
stored one, a row that grows beyond one chunk. Tests check that both give the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import PackedCells
from rowtide.core.rows.chunk import (
    CHUNK_BYTES,
    FORMAT,
    HEADER_BYTES,
    VARIANT_OVERHEAD,
    header,
    pack_header,
)
from rowtide.core.values.crc8 import ROW_ENDS, STEP, crc8

__all__ = ["ROW_END", "STORED_END", "Walked", "join_row", "walk"]

_length = Struct("<I").unpack_from
_between = Struct("<xq4xI").unpack_from
"""From the end of a cell's value: its version, and the length of the next cell's name."""

_PADDING = bytes(4)
"""After the last cell there are fewer bytes than a tag and a length."""

_NAME = 6
"""Bytes before a name: the cell's tag, the name's tag, and its length."""

_VALUE = 5
"""Bytes before a value: a tag and the value's length."""

STORED_END = 11
"""Bytes after a stored value: version and checksum, each with its tag."""

ROW_END = 2
"""Bytes after a row's cells: a tag and the row's checksum."""


class Walked(NamedTuple):
    """The cells of a row that has one version of each column: offsets, names and versions.

    ``begins`` has one number more than there are cells: the end of the last one.
    """

    first: bytes
    names: list[bytes]
    begins: list[int]
    versions: list[int]

    def newest(self, names: tuple[bytes, ...]) -> int:
        """Return the newest version of some columns, -1 if the row has none of them."""
        newest = -1
        for name in names:
            at = bisect_left(self.names, name)
            if self.names[at : at + 1] == [name]:
                newest = max(newest, self.versions[at])
        return newest

    def replace_cells(self, state: int, cells: PackedCells, stamp: int) -> bytes | None:
        """Return the row with ``cells`` replaced, or None if the fold has to do it.

        ``state`` is the row's checksum after its key. The cells are in the order of their names.
        """
        first, names, begins, versions = self
        version = cells.version_ms
        assert version is not None, "cells have their version when they are folded"
        tail = plainbuffer.version_tail(version)
        fresh = cells.fill_template(cells.form.stored, cells.payloads, tail)
        kept, added = versions.copy(), cells.form.data_bytes
        checksums = bytearray()
        parts: list[bytes] = []
        copied = 0
        """The number of stored cells that are processed."""
        for index, name in enumerate(cells.form.names):
            at = bisect_left(names, name, copied)
            parts.append(first[begins[copied] : begins[at]])
            checksums += bytes([first[end - 1] for end in begins[copied + 1 : at + 1]])
            parts += fresh[4 * index : 4 * index + 4]
            checksums.append(cells.checksums[index])
            copied = at
            if names[at : at + 1] == [name]:
                if versions[at] > version:
                    return None  # The newest version wins, not the last write.
                kept[at] = version
                added -= _data_bytes(first, begins[at], len(name))
                copied += 1
        checksums += bytes([first[end - 1] for end in begins[copied + 1 :]])
        parts.append(first[begins[copied] : -ROW_END])
        lowest = min(min(kept), version)
        state = crc8(bytes(checksums), state)
        made = join_row(first, begins[0], parts, state, lowest, stamp, added)
        return made if len(made) <= CHUNK_BYTES else None


def walk(first: bytes) -> Walked | None:
    """Return the cells of a narrow row; None if it has none, or several versions of a column.

    The bytes are our own, so they are not checked.
    """
    _, _, _, key_bytes, _, _, versions_max, _, _ = header(first)
    if versions_max != 1:
        return None
    at = HEADER_BYTES + key_bytes + 1
    end = len(first) - ROW_END
    stored = first + _PADDING
    names: list[bytes] = []
    begins: list[int] = []
    versions: list[int] = []
    (size,) = _length(stored, at + 2)
    while at < end:
        begins.append(at)
        name_at = at + _NAME
        at = name_at + size
        names.append(stored[name_at:at])
        (size,) = _length(stored, at + 1)
        at += _VALUE + size
        version, size = _between(stored, at)
        versions.append(version)
        at += STORED_END
    begins.append(at)
    return Walked(first, names, begins, versions)


def join_row(
    first: bytes,
    start: int,
    cells: list[bytes],
    state: int,
    lowest: int,
    stamp: int,
    added: int,
) -> bytes:
    """Return a stored narrow row with other cells, which begin at ``start`` like its own.

    ``state`` is the row's checksum after them and ``lowest`` their lowest version, one of each
    column. ``added`` is the growth of names and values in bytes.
    """
    _, _, _, key_bytes, _, _, _, data_bytes, _ = header(first)
    head = pack_header(FORMAT, 0, 0, key_bytes, stamp, lowest, 1, data_bytes + added, 0)
    return b"".join((head, first[HEADER_BYTES:start], *cells, ROW_ENDS[STEP[state]]))


def _data_bytes(first: bytes, begin: int, name_bytes: int) -> int:
    """Return a stored cell's size: its name and its value's data."""
    value = begin + _NAME + name_bytes
    (size,) = _length(first, value + 1)
    return name_bytes + int(size) - VARIANT_OVERHEAD[first[value + _VALUE]]
