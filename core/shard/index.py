"""Secondary indexes: the index row for a table's row, and how it changes.

A table's row has one row in an index, or none if a column of the index's key is missing or has a
value that a key cannot have. The index row has that key, and copies of the stored columns with
their versions. Both depend only on the visible row. So an index only needs the difference between
the row before and after a mutation. The mutation's record has that difference
(``record.IndexWrite``): a follower of the log never reads the table's rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from rowtide.core.protocol import plainbuffer
from rowtide.core.records.record import IndexWrite
from rowtide.core.rows.chunk import FORMAT, pack_header, row_key
from rowtide.core.rows.fold import RowAddress, Writes, delete_row, put_row
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.defined_columns import TYPES, check_cell_types
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX, Limits
from rowtide.core.values.schema import (
    BINARY,
    INTEGER,
    LOCAL,
    STRING,
    Index,
    KeyColumn,
    Table,
    TableOptions,
    check_column_name,
    check_table_name,
)

__all__ = [
    "BUILT",
    "PROGRESS",
    "Fed",
    "TableIndexes",
    "build_key",
    "build_value",
    "check_indexable",
    "check_options",
    "check_shape",
    "count_named",
    "decode_fed",
    "feed_key",
    "find_named_key",
    "index_table",
    "index_writes",
    "key_names",
    "latest",
    "new_index_write",
    "progress_of",
]

Row = Mapping[bytes, Cell]
"""A row's visible cells by column name."""

_KEY_TYPES = {1: INTEGER, 4: STRING, 7: BINARY}
"""Type of a key column by DefinedColumnType. Other types cannot be in a key."""


# Checks of an index's definition.


def check_shape(name: str, keys: Sequence[str], columns: Sequence[str], limits: Limits) -> None:
    """Check the limits of an index that do not depend on its table. Raises OTSParameterInvalid."""
    if not 1 <= len(keys) <= limits.key_columns_max:
        raise invalid(
            f"The number of primary key columns must be in range: "
            f"[1, {limits.key_columns_max}] in index."
        )
    if len(columns) > limits.index_attributes_max:
        raise invalid(
            f"The number of attribute columns must be in range: "
            f"[0, {limits.index_attributes_max}] in index."
        )
    check_table_name(name, limits)
    for column in (*keys, *columns):
        check_column_name(column, limits)


def check_indexable(table: Table, index: Index) -> None:
    """Check an index against its table. Raises OTSParameterInvalid."""
    check_options(table.options)
    primary = {column.name: column for column in table.key}
    defined = dict(table.defined_columns)
    seen: set[str] = set()
    for name in (*index.key, *index.columns):
        if name in seen:
            raise invalid(f"Duplicated column name: '{name}' in index '{index.name}'.")
        seen.add(name)
    for name in index.key:
        if name not in primary and name not in defined:
            raise invalid(f"Column '{name}' of index '{index.name}' is not a defined column.")
        if name not in primary and defined[name] not in _KEY_TYPES:
            kind = variant.type_name(bytes((TYPES[defined[name]],)))
            raise invalid(f"{kind} is an invalid type for the primary key.")
    for name in index.columns:
        if name not in defined:
            raise invalid(f"Column '{name}' of index '{index.name}' is not a defined column.")
    first = index.key[0]
    if first in primary and primary[first].auto_increment:
        raise invalid(f"The first column of index '{index.name}' can't be AUTO_INCREMENT.")
    if index.kind == LOCAL and first != table.key[0].name:
        raise invalid(
            f"The first primary key column of local index '{index.name}' must be "
            f"'{table.key[0].name}', the table's, but is '{first}'."
        )


def check_options(options: TableOptions) -> None:
    """Raise OTSParameterInvalid if a table with these options cannot have an index."""
    if options.max_versions != 1:
        raise invalid(
            f"The max_versions of a table with an index must be 1, but is {options.max_versions}."
        )
    if options.time_to_live_s != -1:
        raise invalid(
            f"The time_to_live of a table with an index must be -1, but is "
            f"{options.time_to_live_s}."
        )


def key_names(table: Table, asked: Sequence[str]) -> tuple[str, ...]:
    """Return an index's whole key: the requested columns, then the table's others in order."""
    return (*asked, *(column.name for column in table.key if column.name not in asked))


def count_named(table: Table, asked: Sequence[str]) -> int:
    """Return ``Index.key_named`` of an index that was requested with the columns ``asked``."""
    fewest = _count_fewest_named(table, key_names(table, asked))
    return 0 if len(asked) == fewest else len(asked)


def find_named_key(table: Table, index: Index) -> tuple[str, ...]:
    """Return the key columns that were requested for an index."""
    return index.key[: index.key_named or _count_fewest_named(table, index.key)]


def _count_fewest_named(table: Table, whole: tuple[str, ...]) -> int:
    """Return the smallest number of requested columns that give the key ``whole``."""
    sizes = range(1, len(whole))
    return next((n for n in sizes if key_names(table, whole[:n]) == whole), len(whole))


def index_table(table: Table, index: Index) -> Table:
    """Return an index as a table for reads."""
    primary = {column.name: column.type for column in table.key}
    defined = dict(table.defined_columns)
    columns = tuple(
        KeyColumn(name, primary[name] if name in primary else _KEY_TYPES[defined[name]])
        for name in index.key
    )
    return replace(
        table,
        name=index.name,
        table_id=index.table_id,
        key=columns,
        options=replace(table.options, time_to_live_s=-1, max_versions=1),
        stream=None,
        reserved_read=0,
        reserved_write=0,
        created_us=index.created_us,
        throughput_changed_s=0,
        shards=table.shards if index.kind == LOCAL else index.shards,
        split_points=table.split_points if index.kind == LOCAL else (),
        defined_columns=tuple((n, kind) for n, kind in table.defined_columns if n in index.columns),
        indexes=(),
        main=table.table_id,
        ended=(),
    )


# What a mutation changes in an index.


class _Image(NamedTuple):
    """An index's row."""

    key: list[bytes]
    cells: list[Cell]


class _Source(NamedTuple):
    """The origin of a column of an index's key."""

    position: int
    """Position in the table's key; -1 for a defined column."""
    name: bytes
    kind: int
    """Variant type of a defined column."""


class TableIndexes:
    """A table's indexes, prepared for its mutations."""

    def __init__(self, table: Table, limits: Limits) -> None:
        self.tables = {index.table_id: index_table(table, index) for index in table.indexes}
        """Each index as a table for reads, by the number of its rows."""
        self._defined = table.defined_columns
        self._bytes_max = limits.key_value_bytes_max
        self._indexes = {index.table_id: (index, *_parts(table, index)) for index in table.indexes}
        self._in_keys = {
            source.name
            for _, key, _ in self._indexes.values()
            for source in key
            if source.position < 0
        }
        self._beside_keys = {name for _, _, kept in self._indexes.values() for name in kept}
        self.columns = self._in_keys | self._beside_keys
        """The attribute columns that any of the indexes uses."""

    def __bool__(self) -> bool:
        return bool(self._indexes)

    def check(self, cells: Iterable[Cell]) -> None:
        """Raise OTSParameterInvalid if a value cannot be in one of the indexes.

        Its type must be the defined one, and a part of a key must not be longer than a key may be.
        """
        for cell in cells:
            if cell.name not in self.columns or not cell.variant:
                continue
            check_cell_types(self._defined, (cell,))
            if cell.name in self._in_keys and self._is_too_long(cell.variant):
                raise invalid(
                    f"The length of primary key column: '{cell.name.decode()}' exceeds the "
                    f"MaxLength:{self._bytes_max} with "
                    f"CurrentLength:{variant.payload_size(cell.variant)}."
                )

    def changes(
        self, row: Sequence[bytes], before: Row | None, after: Row | None, only: int | None = None
    ) -> list[IndexWrite]:
        """Return the indexes' changes for a row (its key) that was ``before``, is ``after``.

        None is an absent row. With ``only``, return changes of the index of that number alone.
        """
        writes: list[IndexWrite] = []
        indexes = self._indexes
        for number in indexes if only is None else (only,):
            index, key, kept = indexes[number]
            old = None if before is None else self._image(key, kept, row, before)
            new = None if after is None else self._image(key, kept, row, after)
            local = index.kind == LOCAL
            if old is not None and (new is None or new.key != old.key):
                writes.append(IndexWrite(number, local, old.key, None))
            # An index that was created without the existing rows gets each row when it is written.
            if new is not None and (new != old or not index.whole):
                writes.append(IndexWrite(number, local, new.key, new.cells))
        return writes

    def changes_of_new(
        self, row: Sequence[bytes], cells: Iterable[Cell], wire: bytes
    ) -> list[IndexWrite] | None:
        """Return the indexes' changes for a new row (its key and cells, all puts).

        Returns None for a row with a column that an index stores beside its key: an index has it
        with its version, which the caller has not decided. Raises what ``check`` raises.
        """
        found: dict[bytes, Cell] = {}
        # Most rows have none of the columns. Their names are not even in the bytes then.
        if any(name in wire for name in self.columns):
            found = {cell.name: cell for cell in cells if cell.name in self.columns}
            if not self._beside_keys.isdisjoint(found):
                return None
            self.check(found.values())
        return self.changes(row, None, found)

    def _image(
        self, key: Sequence[_Source], kept: Sequence[bytes], row: Sequence[bytes], cells: Row
    ) -> _Image | None:
        """Return the index's row for a row of the table; None if it has none."""
        values: list[bytes] = []
        for position, name, kind in key:
            if position >= 0:
                values.append(row[position])
                continue
            cell = cells.get(name)
            if cell is None or cell.variant[0] != kind or self._is_too_long(cell.variant):
                return None
            values.append(cell.variant)
        return _Image(values, [cells[name] for name in kept if name in cells])

    def _is_too_long(self, value: bytes) -> bool:
        return len(value) > self._bytes_max and variant.payload_size(value) > self._bytes_max


def _parts(table: Table, index: Index) -> tuple[list[_Source], list[bytes]]:
    """Return the origins of an index's key, and its other columns in stored order."""
    positions = {column.name: place for place, column in enumerate(table.key)}
    defined = dict(table.defined_columns)
    key = [
        _Source(positions[name], name.encode(), 0)
        if name in positions
        else _Source(-1, name.encode(), TYPES[defined[name]])
        for name in index.key
    ]
    return key, sorted(name.encode() for name in index.columns)


# Folding changes of an index.


def index_writes(rows: RangeReader, table: Table, write: IndexWrite, stamp: int) -> Writes:
    """Fold one change into the rows of an index, which is given as a table for reads."""
    names = [name for name, _ in table.key_wire]
    piece, state = plainbuffer.key_piece(list(zip(names, write.key, strict=True)))
    at = RowAddress(row_key(table.table_id, key.encode(write.key)), piece, state)
    if write.cells is None:
        return delete_row(rows, at, stamp)
    return put_row(rows, at, write.cells, stamp, 1)


def new_index_write(table: Table, write: IndexWrite, stamp: int) -> tuple[bytes, bytes]:
    """Return what ``index_writes`` returns for a row without cells that is not there yet."""
    assert write.cells == [], "the row has only a key"
    names = [name for name, _ in table.key_wire]
    piece, state = plainbuffer.key_piece(list(zip(names, write.key, strict=True)))
    head = pack_header(FORMAT, 0, 0, len(piece), stamp, INT64_MAX, 0, 0, 0)
    ends = bytes((0x09, plainbuffer.row_checksum(state, b"")))
    return row_key(table.table_id, key.encode(write.key)), head + piece + ends


def latest(writes: Iterable[IndexWrite]) -> list[IndexWrite]:
    """Return the last change of each row."""
    return list({(write.table, *write.key): write for write in writes}.values())


# The progress of an index.

PROGRESS = b"i"
"""First byte of the keys with the progress of an index. Their values only grow, byte for byte."""

BUILT = b"\x01"


def progress_of(key: bytes) -> int:
    """Return the number of the index of a progress key."""
    return int.from_bytes(key[2:10], "big")


def build_key(number: int, shard_id: str) -> bytes:
    """Return the key with an index's progress through a shard's existing rows."""
    return PROGRESS + b"b" + number.to_bytes(8, "big") + shard_id.encode()


def build_value(following: bytes | None) -> bytes:
    """Return the value: the encoded key at which to continue, or that the index is complete."""
    return BUILT if following is None else b"\x00" + following


def feed_key(number: int, source: str) -> bytes:
    """Return the key with an index's progress in a shard's log."""
    return PROGRESS + b"f" + number.to_bytes(8, "big") + source.encode()


class Fed(NamedTuple):
    """An index's progress in a log: the next offset, and the commit stamp of the last entry."""

    following: int
    stamp: int

    def encode(self) -> bytes:
        """Return the stored value."""
        return _FED.pack(*self)


_FED = Struct(">QQ")


def decode_fed(value: bytes) -> Fed:
    """Return the progress from a value of ``Fed.encode``."""
    return Fed(*_FED.unpack(value))
