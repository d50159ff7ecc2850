"""Rows on their way between rowtide and another system.

A sink gets what a row *is*, never what was done to it. An update of two columns, a
column's expiry and a deleted version all arrive as the whole row with the newest value of
each column. ``stamp`` is the commit stamp in microseconds as of which the row is. It
rises along a key through splits, merges and moves of shards. A row whose stamp is below
the target's stamp of the key is old and is dropped. A row with the same stamp is the same
row, unless the connector's settings changed: the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from rowtide.core.records.change import Kind
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.schema import KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = ["ASSIGNED", "Key", "Refused", "SinkBatch", "SinkRow", "SourceRow", "TableShape"]

Key = tuple[tuple[str, Scalar], ...]
"""The primary key: (column, value) in the table's order."""

ASSIGNED = cast(Scalar, None)
"""In the key of a row to write: an AUTO_INCREMENT column, which the shard assigns. A source that
copies rows has no such column, so the types do not mention it.
"""


class TableShape(NamedTuple):
    """What a sink may rely on: a table's name and its primary key. Other columns vary by row."""

    name: str
    key: tuple[KeyColumn, ...]


@dataclass(slots=True)
class SinkRow:
    """A row as of ``stamp``. ``columns`` is None if the row does not exist any more.

    ``key_bytes`` is the key in an encoding that sorts as the keys do. ``kind`` is the
    kind of change. ``before`` has the original columns if the table's stream keeps them.
    ``existed``: the row existed before the change, None if that is unknown. ``sequence``
    is the position in the shard's log. It is -1 for a row of a snapshot and for a parked
    row that is retried. A sink that stores how far it is in a shard must not take such a
    row for a repetition.
    """

    key: Key
    key_bytes: bytes
    stamp: int
    columns: Mapping[str, Scalar] | None
    kind: Kind
    before: Mapping[str, Scalar] | None = None
    sequence: int = -1
    existed: bool | None = None


@dataclass(slots=True)
class SinkBatch:
    """Rows of one shard, those of a key in the order of their stamps.

    ``covers`` is a range of ``key_bytes``: begin <= key < end, and an empty end is
    unbounded. These rows are all rows of that range as of ``stamp``. The table has no
    other row there, so the target removes what it holds in the range with a lower stamp.
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
    """A row that the target will never accept, and the reason as a text for people."""

    row: SinkRow
    reason: str


class SourceRow(NamedTuple):
    """A change at a source, to be made in a table of rowtide.

    ``columns`` has the columns of the source's row. A column of None has no value, and
    rowtide removes it. ``columns`` itself is None if the row was deleted. ``whole``: the
    row becomes exactly these columns. Otherwise they are merged into the row, and earlier
    versions stay as history. ``time_ms`` is when the source committed the row.
    ``position`` rises, compared as bytes, with every row of a source. A shard skips rows
    that are not above its position. A row whose key the shard completes is new and
    ``whole``. Its versions are the time of its id, so ``time_ms`` does not count.
    """

    table: str
    key: Key
    columns: Mapping[str, Scalar | None] | None
    whole: bool
    time_ms: int
    position: bytes
