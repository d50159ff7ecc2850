"""Rows on their way between rowtide and another system.

A sink is told what a row *is*, never what was done to it: an update of two columns, a column's
expiry, a version that was deleted all come as the whole row with the newest value of each column.
``stamp`` is the commit stamp in microseconds that the row is as of. It rises along a key through
splits, merges and moves of shards: a row whose stamp is below the one that the target holds for the
key is old, and is dropped. One of the same stamp is the same row, unless the connector's settings
were changed: the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.core.records.change import Kind
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.schema import KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = ["Key", "Refused", "SinkBatch", "SinkRow", "SourceRow", "TableShape"]

Key = tuple[tuple[str, Scalar], ...]
"""The primary key: (column, value) in the table's order."""


class TableShape(NamedTuple):
    """A table as a sink may rely on it: its name and its primary key. Columns come as they come."""

    name: str
    key: tuple[KeyColumn, ...]


@dataclass(slots=True)
class SinkRow:
    """A row as of ``stamp``. ``columns`` is None where there is no such row any more.

    ``key_bytes`` are the key in the keys' order: two keys are equal, or less, as these bytes are.
    ``kind`` is what was done; ``before`` the original columns, where the table's stream keeps them;
    ``sequence`` the place in the shard's log, -1 for a row of a snapshot and for one that is told
    out of its turn (a parked row that is tried again): a sink that keeps how far a shard is must
    not take it for a repetition.
    """

    key: Key
    key_bytes: bytes
    stamp: int
    columns: Mapping[str, Scalar] | None
    kind: Kind
    before: Mapping[str, Scalar] | None = None
    sequence: int = -1


@dataclass(slots=True)
class SinkBatch:
    """Rows of one shard, those of a key in the order of their stamps.

    ``covers``: these rows are all there is in that range of ``key_bytes`` (begin <= key < end; an
    empty end is unbounded) as of ``stamp``. What a target holds there of a lower stamp, and is not
    among them, is gone from the table.
    """

    table: str
    shard_id: str
    rows: Sequence[SinkRow]
    covers: Range | None = None
    stamp: int = 0

    def __iter__(self) -> Iterator[SinkRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Refused(NamedTuple):
    """A row that the target will never take, and why, in words for people."""

    row: SinkRow
    reason: str


class SourceRow(NamedTuple):
    """A change at a source, to be made in a table of rowtide.

    ``columns`` are the columns of the source's row, None for one that has no value (it is removed
    in rowtide); ``columns`` itself is None where the row was deleted. ``whole``: the row becomes
    exactly these columns; otherwise they are merged into it, and earlier versions stay as history.
    ``time_ms`` is when it was committed at the source. ``position`` rises, as bytes compare, with
    every row that a source gives: a shard skips what is not above the position it holds.
    """

    table: str
    key: Key
    columns: Mapping[str, Scalar | None] | None
    whole: bool
    time_ms: int
    position: bytes
