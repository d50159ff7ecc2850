"""Rows of one form from their first byte to their last, checked many at a time.

A ``RowForm`` is what rows have in common in their cells. Here it covers the whole row, with its key
and the bytes around it in a request. One unpack per row separates the parts that vary. The constant
parts of all rows are compared at once. Values are made only when needed: for rows that another
worker will decode, only the first key column is needed here.

A form is learnt from a row that was decoded normally. This does not change what is accepted: if one
row does not match, none of these rows is decoded here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct

from rowtide.core.protocol.plainbuffer import HEADER, KeyColumns, RowChange
from rowtide.core.protocol.row_form import (
    PAYLOAD_BYTES_MAX,
    PackedCells,
    are_finite,
    ask_form,
    is_text,
    seed,
    wire_head,
)
from rowtide.core.rows.source_form import KEY_KINDS
from rowtide.core.values import variant
from rowtide.core.values.crc8 import ROW_ENDS, STEP, crc8

__all__ = ["WholeForm", "WholeRows"]

_END = 2
"""Bytes after a value, and at the end of a row: a tag and the checksum."""

_ROW_ENDS = tuple(ROW_ENDS[STEP[state]] for state in range(256))
"""The end of a row, by the checksum of its cells' checksums."""

_new = tuple.__new__


class WholeForm:
    """What whole rows have in common, with the bytes ``before`` and ``after`` each.

    ``row`` is one of them, and ``packed`` are its cells.
    """

    def __init__(self, row: RowChange, packed: PackedCells, *, before: bytes, after: bytes) -> None:
        cells = self.cells = packed.form
        key = [(name, value[0], variant.payload_size(value)) for name, value in row.key]
        columns = [*key, *zip(cells.names, cells.kinds, cells.sizes, strict=True)]
        heads = [wire_head(*column) for column in columns]
        heads[0] = b"".join((before, HEADER, b"\x01", heads[0]))
        heads[len(key)] = b"\x02" + heads[len(key)]
        layout = [
            f"{len(head)}s{column[2]}s2s" for head, column in zip(heads, columns, strict=True)
        ]
        self._after, self._tail_bytes = after, _END + len(after)
        struct = Struct(f"<{''.join(layout)}{self._tail_bytes}x")
        self.wire_bytes = struct.size
        self._unpacked = struct.iter_unpack
        self._heads = tuple(heads)
        self._seeds = tuple(seed(*column) for column in columns)
        self._texts = [at for at, column in enumerate(columns) if column[1] == variant.STRING]
        self._doubles = [at for at, column in enumerate(columns) if column[1] == variant.DOUBLE]
        self.width, self.key_width = len(columns), len(key)
        self.key = [
            (name, value[: len(value) - size])
            for (name, value), (_, _, size) in zip(row.key, key, strict=True)
        ]
        """For each key column its name, and the bytes before the data in its value."""
        begin = len(before) + len(HEADER)
        size = sum(len(head) + column[2] + _END for head, column in zip(heads, key, strict=False))
        self.key_piece = slice(begin, size)

    @classmethod
    def of(cls, row: RowChange, wire: bytes, *, before: bytes, after: bytes) -> WholeForm | None:
        """Return the form of a row that came as ``wire``, or None if it has none.

        ``wire`` must be exactly ``before``, the row and ``after``.
        """
        packed = ask_form(row.cells).packed
        if packed is None or not row.key:
            return None
        kinds, sizes = zip(*((value[0], len(value)) for _, value in row.key), strict=True)
        if max(sizes) > PAYLOAD_BYTES_MAX or not {*kinds} <= {*KEY_KINDS}:
            return None
        form = cls(row, packed, before=before, after=after)
        return form if form.wire_bytes == len(wire) and form.read([wire]) else None

    def read(self, wires: Sequence[bytes]) -> WholeRows | None:
        """Return rows, fully checked, or None if one does not match. Each has ``wire_bytes``."""
        count = len(wires)
        assert {*map(len, wires)} == {self.wire_bytes}, "forms are found by the length"
        parts = (*chain.from_iterable(self._unpacked(b"".join(wires))),)
        if parts[0::3] != self._heads * count:
            return None
        payloads = parts[1::3]
        checksums = bytes(map(crc8, payloads, self._seeds * count))
        ends = bytearray(b"\x0a\x00" * len(checksums))
        ends[1::2] = checksums
        if ends != b"".join(parts[2::3]):
            return None
        tails = [_ROW_ENDS[crc8(row)] + self._after for row in _slices(checksums, self.width)]
        if tails != [wire[-self._tail_bytes :] for wire in wires]:
            return None
        if not is_text(self._columns(payloads, self._texts)):
            return None
        if not are_finite(self._columns(payloads, self._doubles)):
            return None
        return WholeRows(self, wires, payloads, checksums)

    def _columns(self, payloads: Sequence[bytes], places: Sequence[int]) -> list[bytes]:
        """Return the values of the columns at ``places`` in every row."""
        return [*chain.from_iterable([payloads[at :: self.width] for at in places])]


class WholeRows:
    """Checked rows of one form; each row is made when it is read."""

    __slots__ = ("_checksums", "_form", "_payloads", "_wires")

    def __init__(
        self, form: WholeForm, wires: Sequence[bytes], payloads: tuple[bytes, ...], checksums: bytes
    ) -> None:
        self._form = form
        self._wires = wires
        self._payloads = payloads
        self._checksums = checksums

    def first_values(self) -> list[bytes]:
        """Return the first key column's variant of each row."""
        _, head = self._form.key[0]
        return [head + payload for payload in self._payloads[0 :: self._form.width]]

    def key_values(self, index: int) -> tuple[bytes, ...]:
        """Return the variants of one row's key."""
        begin = index * self._form.width
        payloads = self._payloads[begin : begin + self._form.key_width]
        return tuple(
            head + payload for (_, head), payload in zip(self._form.key, payloads, strict=True)
        )

    def row(self, index: int) -> RowChange:
        """Return one row, as if it were decoded separately."""
        form = self._form
        begin = index * form.width
        middle, end = begin + form.key_width, begin + form.width
        payloads, checksums = self._payloads, self._checksums
        key = KeyColumns(
            [
                (name, head + payload)
                for (name, head), payload in zip(form.key, payloads[begin:middle], strict=True)
            ]
        )
        key.piece = self._wires[index][form.key_piece]
        key.state = crc8(checksums[begin:middle])
        cells = PackedCells(form.cells, payloads[middle:end], checksums[middle:end])
        return _new(RowChange, (key, cells, False, None))


def _slices(text: bytes, size: int) -> Iterator[bytes]:
    return chain.from_iterable(_slicer(size).iter_unpack(text))


@lru_cache(256)
def _slicer(size: int) -> Struct:
    return Struct(f"{size}s")
