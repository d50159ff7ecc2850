"""Updates a narrow row by replacing cells in its stored bytes.

Most updates replace values of columns that the row has, and the row has the form of the previous
one: the same columns, with values of the same types and sizes. Then the offset of each cell is
known. One unpack and one comparison prove it, and the new chunk is the old one with a few slices
replaced. No cell is made, sorted or encoded again.

Rows of other forms, and those that lack a column, are walked (``row_walk.py``). The fold
(``fold.py``) does everything else: several versions of a column, a version older than the stored
one, a row that grows beyond one chunk. Tests check that all give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import FormLearner, Forms, PackedCells, RowForm, picker, singles
from rowtide.core.rows.chunk import CHUNK_BYTES, HEADER_BYTES, cells_of, header
from rowtide.core.rows.row_walk import ROW_END, STORED_END, Walked, join_row, walk
from rowtide.core.values.cell import Cell
from rowtide.core.values.crc8 import crc8

__all__ = ["Patch", "newest_version", "patch_row", "update_row"]


class Patch:
    """Puts of one form, for stored rows of one form that have all of their columns."""

    __slots__ = (
        "_added",
        "_checksums",
        "_data_added",
        "_heads",
        "_indexes",
        "_kept",
        "_last",
        "_row_bytes",
        "_template",
        "_versions",
    )

    def __init__(self, changes: RowForm, row: RowForm) -> None:
        sizes = [len(h) + s + STORED_END for h, s in zip(row.heads, row.sizes, strict=True)]
        ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
        indexes = [row.names.index(name) for name in changes.names]
        begins = [ends[index] - sizes[index] for index in indexes]
        behind = [0, *(ends[index] for index in indexes)]
        self._indexes = indexes
        """Indexes of the changed columns in the row."""
        self._kept = list(zip(behind, begins, strict=False))
        """What stays before each changed cell: its begin and end, relative to the first cell."""
        self._last = behind[-1]
        self._row_bytes = row.stored_bytes
        self._heads, self._versions = row.heads, row.versions
        self._checksums = picker([end - 1 for end in ends])
        self._data_added = sum(changes.sizes) - sum(row.sizes[index] for index in indexes)
        self._added = changes.stored_bytes - sum(sizes[index] for index in indexes)
        self._template = [part for head in changes.heads for part in (b"", head, b"", b"", b"")]

    @classmethod
    def of(cls, changes: RowForm, cells: Sequence[Cell]) -> Patch | None:
        """Return the patch for rows that are stored like these cells, or None."""
        if changes.ordered is not changes:
            return None
        row = RowForm.of([cell._replace(version_ms=None) for cell in cells])
        if row is None or row.ordered is not row or not set(changes.names) <= set(row.names):
            return None
        return cls(changes, row)

    def newest(self, first: bytes, start: int) -> int | None:
        """Return the newest version of the columns, or None if the row has another form."""
        versions = self._read_versions(first, start)
        return None if versions is None else max([versions[index] for index in self._indexes])

    def replace_cells(
        self, first: bytes, start: int, state: int, cells: PackedCells, stamp: int
    ) -> bytes | None:
        """Return the row with ``cells`` replaced, or None if the fold has to do it.

        The row's cells begin at ``start``; ``state`` is its checksum after the key.
        """
        versions = self._read_versions(first, start)
        if versions is None or len(first) + self._added > CHUNK_BYTES:
            return None
        version = cells.version_ms
        assert version is not None, "cells have their version when they are folded"
        if max([versions[index] for index in self._indexes]) > version:
            return None  # The newest version wins, not the last write.
        return self._exchange(first, start, state, versions, cells, version, stamp)

    def update_cells(
        self, first: bytes, start: int, state: int, cells: PackedCells, time_ms: int, stamp: int
    ) -> tuple[bytes, PackedCells] | None:
        """Return the row with ``cells`` at a version above theirs, and these cells."""
        versions = self._read_versions(first, start)
        if versions is None or len(first) + self._added > CHUNK_BYTES:
            return None
        version = max(max([versions[index] for index in self._indexes]) + 1, time_ms)
        stamped = cells.stamp(version)
        return self._exchange(first, start, state, versions, stamped, version, stamp), stamped

    def _exchange(
        self,
        first: bytes,
        start: int,
        state: int,
        versions: tuple[int, ...],
        cells: PackedCells,
        version: int,
        stamp: int,
    ) -> bytes:
        kept = list(versions)
        checksums = bytearray(self._checksums(first[start:]))
        for index, checksum in zip(self._indexes, cells.checksums, strict=True):
            kept[index] = version
            checksums[index] = checksum
        count = len(cells)
        parts = self._template.copy()
        parts[0::5] = [first[start + begin : start + end] for begin, end in self._kept]
        parts[2::5] = cells.payloads
        parts[3::5] = [plainbuffer.version_tail(version)] * count
        parts[4::5] = singles(cells.checksums)
        parts.append(first[start + self._last : -ROW_END])
        state = crc8(bytes(checksums), state)
        return join_row(first, start, parts, state, min(kept), stamp, self._data_added)

    def _read_versions(self, first: bytes, start: int) -> tuple[int, ...] | None:
        """Return each cell's version, or None if the row has another form."""
        parts = self._versions(first, start)
        return parts[1::2] if parts[0::2] == self._heads else None


PATCHES: Forms[Patch] = Forms()
"""Known patches by the form of the changes and the bytes of the row's cells."""


def newest_version(first: bytes, cells: PackedCells) -> int | None:
    """Return a narrow row's newest version of the columns, -1 if it has none of them.

    None if the fold has to look: a column has several versions, or there are no cells.
    """
    start, place = _place(first, cells.form.ordered)
    if place is not None and place.form is not None:
        newest = place.form.newest(first, start)
        if newest is not None:
            return newest
    walked = walk(first)
    return None if walked is None else walked.newest(cells.form.names)


def patch_row(first: bytes, state: int, cells: PackedCells, stamp: int) -> bytes | None:
    """Return the changed narrow row, or None if the fold has to do it.

    The columns keep one version each.
    """
    start, place = _place(first, cells.form)
    if place is not None and place.form is not None:
        made = place.form.replace_cells(first, start, state, cells, stamp)
        if made is not None:
            place.hits += 1
            return made
    walked = _walk_unpatched(first, cells.form, place)
    return None if walked is None else walked.replace_cells(state, cells, stamp)


def update_row(
    first: bytes, state: int, cells: PackedCells, time_ms: int, stamp: int
) -> tuple[bytes, PackedCells] | None:
    """Return the narrow row changed by cells without a version, and these cells with theirs.

    This is ``newest_version`` and ``patch_row`` in one; None if the fold has to do it. The cells
    are in the order of their names.
    """
    start, place = _place(first, cells.form)
    if place is not None and place.form is not None:
        found = place.form.update_cells(first, start, state, cells, time_ms, stamp)
        if found is not None:
            place.hits += 1
            return found
    walked = _walk_unpatched(first, cells.form, place)
    if walked is None:
        return None
    stamped = cells.stamp(max(walked.newest(cells.form.names) + 1, time_ms))
    made = walked.replace_cells(state, stamped, stamp)
    return None if made is None else (made, stamped)


def _walk_unpatched(
    first: bytes, changes: RowForm, place: FormLearner[Patch] | None
) -> Walked | None:
    """Walk a narrow row that no patch changed. Sometimes learn a patch from it."""
    if place is None:
        place = PATCHES.place((changes, _cells_bytes(first)[1]))
    place.left -= 1
    if place.left <= 0 and place.judge():
        place.learn(Patch.of(changes, cells_of(first)))
    return walk(first)


def _place(first: bytes, changes: RowForm) -> tuple[int, FormLearner[Patch] | None]:
    """Return the offset of a row's cells, and the known patch for such rows."""
    start, size = _cells_bytes(first)
    return start, PATCHES.find((changes, size))


def _cells_bytes(first: bytes) -> tuple[int, int]:
    """Return the offset of a narrow row's cells, and their bytes."""
    key_bytes: int = header(first)[3]
    start = HEADER_BYTES + key_bytes + 1
    return start, len(first) - start - ROW_END
