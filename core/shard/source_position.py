"""How far a shard has what a source gave it: the last position of each source, by range of keys.

A source is a foreign database whose changes become rows. Each row that it gives has a position,
bytes that rise with every row. A shard notes, in the same group of its log as the rows, a range and
a position: *every row that the source gave up to this position, with a key in this range, is in the
log*. A row that is not above the position held for its key is there already, and is skipped.

What was noted stays true whatever becomes of the shard: rows go with their range through splits,
merges and moves, and never back. So an entry is never taken back or cut. Of those that cover a key
the highest counts, and whoever takes over a range inherits by finding them: a shard writes only the
entry of its own range, and reads all that overlap it. Parents of a merge that had come to different
places keep them, each for its own keys.

It rests on how a source writes: the rows of one shard in the order of their positions, and those
that follow only once those before are answered.

Key: ``s``, the table's number (4 bytes, big-endian), the source's name and the range's begin, each
behind its length (2 bytes, big-endian), the range's end. Value: the position. Values only grow,
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
"""Sources of a shard for which is remembered what was inherited."""

_HEAD_BYTES = 1 + _NUMBER.size


def positions_of(table_id: int) -> tuple[bytes, bytes]:
    """Return the keys (low <= key < high) of a table's positions."""
    return SOURCES + _NUMBER.pack(table_id), SOURCES + _NUMBER.pack(table_id + 1)


def table_of(position_key: bytes) -> int:
    """Return the number of the table that a position is of."""
    number: int = _NUMBER.unpack_from(position_key, 1)[0]
    return number


def range_of(position_key: bytes) -> Range:
    """Return the keys that a position is about."""
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
    """Return the write of a position, none where the rows have that or a higher one."""
    stored = rows.get(position_key)
    return [(position_key, position)] if stored is None or position > stored else []


class Reached(NamedTuple):
    """How far a shard has a source.

    ``all_above`` is the highest position held anywhere in it: a row above it was never given.
    ``own`` holds for the whole shard, ``inherited`` for parts of it.
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
    """Those of one shard. ``rows`` are what is applied; ``table`` is kept up by the shard."""

    def __init__(self, shard_id: str, table: Table, rows: ChunkReader) -> None:
        self.table = table
        self._shard_id = shard_id
        self._rows = rows
        self._inherited: dict[str, tuple[tuple[Range, bytes], ...]] = {}

    def reached(self, view: ChunkReader, source: str) -> Reached:
        """Return how far ``view`` has a source."""
        inherited = self._inherited.get(source)
        if inherited is None:
            if len(self._inherited) >= REMEMBERED_MAX:
                self._inherited.clear()
            # They were written before the shard opened, and nobody writes them any more.
            inherited = self._inherited[source] = tuple(self._found(source, self.keys()))
        own = view.get(_position_key(self.table.table_id, source, self.keys())) or b""
        return Reached(own, inherited, max([own, *(position for _, position in inherited)]))

    def record(self, source: str, position: bytes) -> SourcePosition:
        """Return the record that ends a group of rows which a source gave up to a position."""
        return SourcePosition(source, *self.keys(), position)

    def write_of(self, body: SourcePosition) -> tuple[bytes, bytes]:
        """Return the key and the value that a record's position is kept by."""
        keys = body.begin, body.end
        return _position_key(self.table.table_id, body.source, keys), body.position

    def forget(self) -> None:
        """Look again for what is inherited: more was copied."""
        self._inherited.clear()

    def _found(self, source: str, keys: Range) -> list[tuple[Range, bytes]]:
        prefix = _source_prefix(self.table.table_id, source)
        own = _position_key(self.table.table_id, source, keys)
        return [
            (range_of(position_key), position)
            for position_key, position in self._rows.scan(prefix, prefix + b"\xff" * 8)
            if position_key != own and within([range_of(position_key)], keys)
        ]

    def keys(self) -> Range:
        """Return the keys of the shard."""
        place = self.table.shard(self._shard_id)
        # A range too wide would tell other shards that they have what they have not.
        assert place is not None, "whoever evaluates has a part of the table's keys"
        return place.begin, place.end
