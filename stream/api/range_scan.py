"""The stored rows of a range, shard by shard, in the range's order.

GetRange and BulkExport read through this module. It does not know what part of a row is
answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rowtide.core.rows.chunk import HEADER_BYTES, header, row_end, row_key
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.read import StoredRow, key_row, read_range
from rowtide.core.values import key
from rowtide.core.values.errors import Unavailable, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.row_requests import read_key
from rowtide.stream.shard.owner import ShardOwner

__all__ = [
    "Forward",
    "RangePage",
    "Span",
    "find_touched_shards",
    "iterate_rows",
    "key_piece",
    "next_key",
    "require_known",
    "select_stored",
    "span_of",
]


class Span(NamedTuple):
    """Encoded bounds of a range: from ``start``, inclusive, to ``end``, exclusive."""

    start: bytes
    end: bytes
    backward: bool

    @property
    def partition_keys(self) -> tuple[bytes, bytes]:
        """The variants of the first key column at both ends."""
        return key.decode(self.start)[0], key.decode(self.end)[0]


class RangePage(NamedTuple):
    """One answer's rows as wire bytes without header, and the next unread key (empty: none).

    ``size`` is the sum of the rows' ``RowAnswer.size``. ``token`` is where the next key's
    row continues, if a part of it has been read.
    """

    rows: list[bytes]
    size: int
    next_key: bytes
    token: bytes = b""


def span_of(
    table: Table, inclusive_start: bytes, exclusive_end: bytes, limits: Limits, *, backward: bool
) -> Span:
    """Return the range between two keys of a request. Raises OTSInvalidPK, OTSParameterInvalid."""
    start = read_key(inclusive_start, table, limits, bound=True)
    end = read_key(exclusive_end, table, limits, bound=True)
    first = key.encode([value for _, value in start])
    last = key.encode([value for _, value in end])
    if backward and first <= last:
        raise invalid("Begin key must more than end key in BACKWARD")
    if not backward and first >= last:
        raise invalid("Begin key must less than end key in FORWARD")
    return Span(first, last, backward)


def find_touched_shards(
    table: Table, span: Span, only: frozenset[str] | None = None
) -> list[ShardRange]:
    """Return the shards that a range touches, in the range's order; only those in ``only``."""
    low, high = (span.end, span.start) if span.backward else (span.start, span.end)
    shards = [s for s in table.shards if s.begin <= high and (not s.end or low < s.end)]
    if only is not None:
        shards = [shard for shard in shards if shard.shard_id in only]
    return shards[::-1] if span.backward else shards


def require_known(table: Table, shards: frozenset[str]) -> None:
    """Raise ``Unavailable`` if a range was divided by a catalog that has other shards.

    A shard that was split, merged or moved, or is not known yet, would be left out with
    its rows.
    """
    if not shards <= {shard.shard_id for shard in table.shards}:
        raise Unavailable("The range was divided by another catalog.")


def iterate_rows(
    owner: ShardOwner, table: Table, shard: ShardRange, span: Span
) -> Iterator[StoredRow]:
    """Return a shard's rows within a range, in the range's order."""
    rows, _ = select_stored(owner.rows, table, shard, span)
    return rows


def select_stored(
    reader: RangeReader, table: Table, shard: ShardRange, span: Span
) -> tuple[Iterator[StoredRow], Forward | None]:
    """Return a shard's rows within a range, and the chunks that they are made of.

    The rows are in the range's order. The chunks are None if the range goes backward.
    """
    if not span.backward:
        start = row_key(table.table_id, max(span.start, shard.begin))
        end = min(span.end, shard.end) if shard.end else span.end
        forward = Forward(reader, start, row_key(table.table_id, end))
        return forward.rows_from(start), forward
    # Backward: from the last chunk of the row at ``start`` down to the first row after
    # ``end``.
    high = row_end(row_key(table.table_id, span.start))
    if shard.end and span.start >= shard.end:
        high = row_key(table.table_id, shard.end)
    low = max(row_end(row_key(table.table_id, span.end)), row_key(table.table_id, shard.begin))
    return read_range(reader, low, high, backward=True), None


class Forward(NamedTuple):
    """The chunks low <= key < high of a reader, in order."""

    reader: RangeReader
    low: bytes
    high: bytes

    def chunks(self) -> Iterator[tuple[bytes, bytes]]:
        """Return all chunks with their keys."""
        return self.reader.scan(self.low, self.high)

    def rows_from(self, low: bytes) -> Iterator[StoredRow]:
        """Return the rows from a chunk's key on."""
        return read_range(self.reader, low, self.high, backward=False)


def key_piece(first: bytes) -> bytes:
    """Return the key's wire bytes, with tag 01, from a stored row's first chunk."""
    _, _, end_bytes, key_bytes, *_ = header(first)
    start = HEADER_BYTES + end_bytes
    return first[start : start + key_bytes]


def next_key(first: bytes) -> bytes:
    """Return the wire row, key only, of a stored row's first chunk."""
    return key_row(key_piece(first))
