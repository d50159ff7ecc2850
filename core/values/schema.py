"""A table's definition: key, options and stream, and checks of names and keys.

Values only, no storage. The catalog keeps a ``Table`` as a JSON document (``catalog.py``). A
shard's log has the options that are in force from a record on. Names are compared byte for byte,
names of instances without case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.core.values import variant
from rowtide.core.values.errors import invalid, invalid_key
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.limits import INT32_MAX, Limits

__all__ = [
    "BINARY",
    "GLOBAL",
    "INTEGER",
    "LOCAL",
    "STRING",
    "Index",
    "KeyColumn",
    "ShardRange",
    "StreamSettings",
    "Table",
    "TableOptions",
    "check_column_name",
    "check_key",
    "check_table_name",
    "is_instance_name",
    "is_table_name",
]

# Numbers of the protocol's PrimaryKeyType, kept on disk in the catalog's documents.
INTEGER = 1
STRING = 2
BINARY = 3

# Numbers of the protocol's IndexType, kept on disk in the catalog's documents.
GLOBAL = 0
LOCAL = 1
_VARIANT_OF = {INTEGER: variant.INTEGER, STRING: variant.STRING, BINARY: variant.BLOB}
_TYPE_NAME = {INTEGER: "VT_INTEGER", STRING: "VT_STRING", BINARY: "VT_BLOB"}
_INFINITE = (variant.INF_MIN, variant.INF_MAX)
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_INSTANCE_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{1,14})[A-Za-z0-9]\Z")


class KeyColumn(NamedTuple):
    """One primary-key column. ``type`` is INTEGER, STRING or BINARY."""

    name: str
    type: int
    auto_increment: bool = False


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Options that decide which versions are visible and which writes are accepted.

    ``time_to_live_s`` is -1 for no expiry. ``deviation_s`` bounds how far a writer's version may be
    from the server's clock, in either direction.
    """

    time_to_live_s: int = -1
    max_versions: int = 1
    deviation_s: int = 86400
    allow_update: bool = True

    def check(self, limits: Limits) -> None:
        """Raise OTSParameterInvalid if a value is out of bounds."""
        ttl = self.time_to_live_s
        if ttl != -1 and not limits.time_to_live_s_min <= ttl <= INT32_MAX:
            raise invalid(
                f"The time_to_live must be -1 or in range: "
                f"[{limits.time_to_live_s_min}, {INT32_MAX}], but is {ttl}."
            )
        if not 1 <= self.max_versions <= INT32_MAX:
            raise invalid(
                f"The max_versions must be in range: [1, {INT32_MAX}], but is {self.max_versions}."
            )
        if self.deviation_s < 1:
            raise invalid(
                f"The deviation_cell_version_in_sec must be greater than 0, but is "
                f"{self.deviation_s}."
            )


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """One period in which a table's stream is enabled; enabling it again starts another."""

    stream_id: str
    enabled_at_us: int
    expiration_hours: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardRange:
    """A shard and its range of encoded keys: begin <= key < end; an empty end is unbounded.

    Its commit stamps are above ``floor_us``, the last one of its parents. ``sealed_us`` and
    ``sealed_at`` are stamp and offset of its log's seal; 0 and -1 while it is open. With ``copied``
    its log begins with the rows of its parent, which is in another slot. ``came``: it was copied,
    or an ancestor in this slot was.
    """

    shard_id: str
    slot: int
    begin: bytes = b""
    end: bytes = b""
    parents: tuple[str, ...] = ()
    floor_us: int = 0
    sealed_us: int = 0
    sealed_at: int = -1
    copied: bool = False
    came: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index of a table; ``table_id`` is the id of the index's own rows.

    ``key`` are all of its key columns: those requested, then the table's others. ``key_named``
    counts the requested ones; 0 means the fewest that give ``key``. ``columns`` are defined columns
    that the index stores as well. A LOCAL index is in the table's shards and is written with the
    row. A GLOBAL index has ``shards`` of its own and follows the table. ``whole``: it was created
    to include existing rows. ``building`` is True until it has them all.
    """

    name: str
    table_id: int
    kind: int
    key: tuple[str, ...]
    columns: tuple[str, ...]
    created_us: int
    whole: bool = True
    building: bool = False
    shards: tuple[ShardRange, ...] = ()
    key_named: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the catalog.

    An index is read as a table of its own. Then ``main`` is its base table's id, otherwise 0.
    ``shards`` cover the keys without gaps, in order. ``ended`` are shards that were split, merged
    or moved and whose logs are still kept, parents before children.
    """

    instance: str
    name: str
    table_id: int
    key: tuple[KeyColumn, ...]
    options: TableOptions
    stream: StreamSettings | None
    reserved_read: int
    reserved_write: int
    created_us: int
    throughput_changed_s: int
    shards: tuple[ShardRange, ...]
    split_points: tuple[bytes, ...] = ()
    defined_columns: tuple[tuple[str, int], ...] = ()
    enable_local_txn: bool = True
    indexes: tuple[Index, ...] = ()
    main: int = 0
    ended: tuple[ShardRange, ...] = ()
    key_wire: tuple[tuple[bytes, int], ...] = field(init=False, compare=False)
    """(name, variant type) per key column, as a request's key must have them."""

    key_overhead: int = field(init=False, compare=False)
    """Bytes of a key's wire form that are neither name nor value."""

    auto_increment_index: int | None = field(init=False, compare=False)
    """Position of the AUTO_INCREMENT key column, or None."""

    def __post_init__(self) -> None:
        wire = tuple((c.name.encode(), _VARIANT_OF[c.type]) for c in self.key)
        object.__setattr__(self, "key_wire", wire)
        overhead = 1 + sum(14 if column.type == INTEGER else 18 for column in self.key)
        object.__setattr__(self, "key_overhead", overhead)
        auto = next((i for i, c in enumerate(self.key) if c.auto_increment), None)
        object.__setattr__(self, "auto_increment_index", auto)

    def shard(self, shard_id: str) -> ShardRange | None:
        """Return the open shard of that id, or None."""
        return next((shard for shard in self.shards if shard.shard_id == shard_id), None)

    def keys_of(self, shard_id: str) -> Range:
        """Return the encoded keys of an open shard; every key for any other id."""
        shard = self.shard(shard_id)
        return (b"", b"") if shard is None else (shard.begin, shard.end)

    def index(self, name: str) -> Index | None:
        """Return the index of that name, or None."""
        return next((index for index in self.indexes if index.name == name), None)


def check_table_name(name: str, limits: Limits) -> None:
    """Raise OTSParameterInvalid unless ``name`` is a valid table name."""
    if not is_table_name(name, limits):
        raise invalid(f"Invalid table name: '{name}'.")


def is_table_name(name: str, limits: Limits) -> bool:
    """True if ``name`` is a valid table name: 1-255 letters, digits, _, not first a digit."""
    return len(name) <= limits.name_bytes_max and _TABLE_NAME.match(name) is not None


def check_column_name(name: str, limits: Limits) -> None:
    """Raise OTSParameterInvalid unless ``name`` is a valid column: 1-255 bytes, no leading #."""
    if not name or name[0] == "#" or len(name.encode()) > limits.name_bytes_max:
        raise invalid(f"Invalid column name: '{name}'.")


def is_instance_name(name: str) -> bool:
    """True if ``name`` is a valid instance name: 3-16 letters, digits, hyphens."""
    return _INSTANCE_NAME.match(name) is not None


def check_key(
    table: Table,
    key: Sequence[tuple[bytes, bytes]],
    limits: Limits,
    *,
    bound: bool = False,
    auto: bool = False,
) -> None:
    """Check a request's key against the table's schema: count, then per column name, then type.

    ``bound`` allows INF_MIN and INF_MAX (ends of a range). ``auto`` allows AUTO_INCREMENT in the
    column that has the option. Raises OTSInvalidPK, or OTSParameterInvalid for sizes.
    """
    wire = table.key_wire
    if len(key) != len(wire):
        raise invalid_key(f"Validate PK size fail. Input: {len(key)}, Meta: {len(wire)}.")
    for position, (name, value) in enumerate(key):
        want, kind = wire[position]
        if name != want:
            raise invalid_key(
                f"Validate PK name fail. Input: {_text(name)}, Meta: {want.decode()}."
            )
        if value[0] != kind:
            _check_special(table, position, value, bound=bound, auto=auto)
        elif len(value) > 1024 and variant.payload_size(value) > limits.key_value_bytes_max:
            raise invalid(
                f"The length of primary key column: '{want.decode()}' exceeds the "
                f"MaxLength:{limits.key_value_bytes_max} with "
                f"CurrentLength:{variant.payload_size(value)}."
            )


def _check_special(table: Table, position: int, value: bytes, *, bound: bool, auto: bool) -> None:
    kind = value[0]
    if kind in _INFINITE:
        if bound:
            return
        raise invalid(f"{variant.type_name(value)} is an invalid type for the primary key.")
    if kind == variant.AUTO_INCREMENT and auto and table.key[position].auto_increment:
        return
    meta = _TYPE_NAME[table.key[position].type]
    raise invalid_key(f"Validate PK type fail. Input: {variant.type_name(value)}, Meta: {meta}.")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
