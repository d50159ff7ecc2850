"""How far a shard has the rows of each source: the last position of the source, by key range.

A source is an external database whose changes become rows. Each of its rows has a position: bytes
that rise with every row. In the same log group as the rows, a shard stores a range and a position:
*every row of the source up to this position, with a key in this range, is in the log*. A row whose
position is not above the one stored for its key is there already, and is skipped.

What is stored stays true for any later split, merge or move: rows go with their range and never
back. So an entry is never removed or cut. Of the entries that cover a key the highest counts. A
shard that takes over a range finds the entries there: it writes only the entry of its own range,
and reads all that overlap the range. If the parents of a merge had different positions, each entry
stays for its own keys.

This relies on how a source writes: the rows of one shard in the order of their positions, and later
rows only after the earlier ones are answered.

Key: ``s``, the table's number (4 bytes, big-endian), the source's name and the range's begin, each
after its length (2 bytes, big-endian), then the range's end. Value: the position. Values only grow,
byte for byte.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from rowtide.core.records.record import SourcePosition
from rowtide.core.rows.fold import ChunkReader
from rowtide.core.values.key_ranges import Range, within
from rowtide.core.values.schema import Table

__all__ = [
    "SOURCES",
    "Reached",
    "SourcePositions",
    "further",
    "positions_of",
    "range_of",
    "table_of",
]

SOURCES = b"s"
"""First byte of the keys of sources' positions."""

_NUMBER = Struct(">I")
_LENGTH = Struct(">H")
REMEMBERED_MAX = 256
"""Sources of a shard whose inherited positions are cached."""

_HEAD_BYTES = 1 + _NUMBER.size


def positions_of(table_id: int) -> tuple[bytes, bytes]:
    """Return the key range (low <= key < high) of a table's positions."""
    return SOURCES + _NUMBER.pack(table_id), SOURCES + _NUMBER.pack(table_id + 1)


def table_of(position_key: bytes) -> int:
    """Return the number of the table of a position."""
    number: int = _NUMBER.unpack_from(position_key, 1)[0]
    return number


def range_of(position_key: bytes) -> Range:
    """Return the range of keys for which a position counts."""
    at = _HEAD_BYTES
    at += _LENGTH.size + _LENGTH.unpack_from(position_key, at)[0]
    begin = at + _LENGTH.size
    end = begin + _LENGTH.unpack_from(position_key, at)[0]
    return position_key[begin:end], position_key[end:]


def _source_prefix(table_id: int, source: str) -> bytes:
    name = source.encode()
    return SOURCES + _NUMBER.pack(table_id) + _LENGTH.pack(len(name)) + name


def _position_key(table_id: int, source: str, keys: Range) -> bytes:
    begin, end = keys
    return _source_prefix(table_id, source) + _LENGTH.pack(len(begin)) + begin + end


def further(
    rows: ChunkReader, position_key: bytes, position: bytes
) -> list[tuple[bytes, bytes | None]]:
    """Return the write of a position; empty if the rows have that or a higher one."""
    stored = rows.get(position_key)
    return [(position_key, position)] if stored is None or position > stored else []


class Reached(NamedTuple):
    """How far a shard has a source.

    ``all_above`` is the highest position stored anywhere in it: rows above it were never written.
    ``own`` counts for the whole shard, ``inherited`` for parts of it.
    """

    own: bytes
    inherited: tuple[tuple[Range, bytes], ...]
    all_above: bytes

    def holds(self, encoded_key: bytes, position: bytes) -> bool:
        """True if the shard has the row already."""
        if position > self.all_above:
            return False
        if position <= self.own:
            return True
        return any(
            position <= reached and begin <= encoded_key and (not end or encoded_key < end)
            for (begin, end), reached in self.inherited
        )


class SourcePositions:
    """The positions of one shard. ``rows`` are the applied rows; the shard updates ``table``."""

    def __init__(self, shard_id: str, table: Table, rows: ChunkReader) -> None:
        self.table = table
        self._shard_id = shard_id
        self._rows = rows
        self._inherited: dict[str, tuple[tuple[Range, bytes], ...]] = {}

    def find_reached(self, view: ChunkReader, source: str) -> Reached:
        """Return how far ``view`` has a source."""
        inherited = self._inherited.get(source)
        if inherited is None:
            if len(self._inherited) >= REMEMBERED_MAX:
                self._inherited.clear()
            # They were written before the shard opened and do not change any more.
            inherited = self._inherited[source] = tuple(self._find_inherited(source, self.keys()))
        own = view.get(_position_key(self.table.table_id, source, self.keys())) or b""
        return Reached(own, inherited, max([own, *(position for _, position in inherited)]))

    def record(self, source: str, position: bytes) -> SourcePosition:
        """Return the record that ends a group of a source's rows up to a position."""
        return SourcePosition(source, *self.keys(), position)

    def write_of(self, body: SourcePosition) -> tuple[bytes, bytes]:
        """Return the key and the value that store a record's position."""
        keys = body.begin, body.end
        return _position_key(self.table.table_id, body.source, keys), body.position

    def forget(self) -> None:
        """Drop the cached inherited positions, because more were copied."""
        self._inherited.clear()

    def _find_inherited(self, source: str, keys: Range) -> list[tuple[Range, bytes]]:
        prefix = _source_prefix(self.table.table_id, source)
        own = _position_key(self.table.table_id, source, keys)
        return [
            (range_of(position_key), position)
            for position_key, position in self._rows.scan(prefix, prefix + b"\xff" * 8)
            if position_key != own and within([range_of(position_key)], keys)
        ]

    def keys(self) -> Range:
        """Return the range of keys of the shard."""
        place = self.table.shard(self._shard_id)
        # A range that is too wide would claim for other shards rows that they do not have.
        assert place is not None, "a shard that evaluates has a part of the table's keys"
        return place.begin, place.end
