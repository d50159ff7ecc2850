"""The rows of one answer in either of two forms: plain rows, or a SimpleRowMatrix.

A block takes rows until one does not fit the answer; the first row always fits. This
module decides which columns a matrix has.
"""

from __future__ import annotations

from collections.abc import Iterable

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, RowChange
from rowtide.core.protocol.row_matrix import MatrixWriter, fields_of
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows import capacity
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.stream.api.range_scan import RangePage

__all__ = ["MatrixBlock", "PlainBlock", "range_matrix"]


class PlainBlock:
    """Rows one after another behind one header; without rows the block is empty."""

    type = pb.DBT_PLAIN_BUFFER

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows: list[bytes] = []
        self._size = len(HEADER)

    def add(self, wire: bytes) -> bool:
        """Add a row as wire bytes without header; return False if it does not fit."""
        self._size += len(wire)
        if self._rows and self._size > self._bytes_max:
            return False
        self._rows.append(wire)
        return True

    def finish(self) -> bytes:
        """Return the rows of the answer."""
        return b"".join((HEADER, *self._rows)) if self._rows else b""


class MatrixBlock:
    """Rows as a matrix: key columns in the schema's order, then attributes by name.

    With ``entire_key`` it has all key columns, otherwise those among ``asked``. A block
    without rows is still a matrix, because the Go SDK reads zero bytes as plain rows.
    """

    type = pb.DBT_SIMPLE_ROW_MATRIX

    def __init__(
        self, table: Table, asked: Iterable[str], bytes_max: int, *, entire_key: bool
    ) -> None:
        names = {name.encode() for name in asked}
        key = [name for name, _ in table.key_wire]
        self._keys = [name for name in key if entire_key or name in names]
        self._names = sorted(names.difference(key))
        self._bytes_max = bytes_max
        entire = len(self._keys) == len(key)
        self._writer = MatrixWriter(self._keys, self._names, entire_key=entire)

    def add(self, wire: bytes) -> bool:
        """Add a row as wire bytes without header; return False if it does not fit."""
        return self.add_row(plainbuffer.decode_row(HEADER + wire))

    def add_row(self, row: RowChange) -> bool:
        """Add a row; return False if it does not fit."""
        encoded = MatrixWriter.row_bytes(fields_of(row, self._keys, self._names))
        writer = self._writer
        if writer and writer.size + len(encoded) > self._bytes_max:
            return False
        writer.add(encoded)
        return True

    def finish(self) -> bytes:
        """Return the rows of the answer."""
        return self._writer.finish()


def range_matrix(
    table: Table, request: pb.GetRangeRequest, page: RangePage, limits: Limits
) -> bytes:
    """Return GetRangeResponse with the page's rows as a matrix.

    The page was cut for plain rows. Its nulls may make a row larger here, so it may be
    cut again.
    """
    entire_key = request.return_entire_primary_keys
    asked = request.columns_to_get
    block = MatrixBlock(table, asked, limits.range_bytes_max, entire_key=entire_key)
    following, token, size = page.next_key, page.token, 0
    for wire in page.rows:
        row = plainbuffer.decode_row(HEADER + wire)
        if not block.add_row(row):
            following, token = plainbuffer.encode_row(row.key, []), b""
            break
        size += capacity.key_bytes(row.key) + capacity.cells_bytes(row.cells)
    response = pb.GetRangeResponse(
        rows=block.finish(), data_block_type=block.type, next_token=token or None
    )
    response.consumed.capacity_unit.read = capacity.units(size)
    response.consumed.capacity_unit.write = 0
    if following:
        response.next_start_primary_key = HEADER + following
    return response.SerializeToString()
