"""The contents of a shard's log records: one class for each kind of body.

``record.py`` has their bytes, and the envelope around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.core.values.cell import Cell

__all__ = [
    "NO_INDEXES",
    "Body",
    "Commit",
    "CopyBody",
    "CopyEntry",
    "DeleteBody",
    "IndexBuild",
    "IndexFeed",
    "IndexWrite",
    "Kept",
    "NoOp",
    "Options",
    "PutBody",
    "Reclaim",
    "Seal",
    "Snapshot",
    "SnapshotRow",
    "SourcePosition",
    "StreamOptions",
    "UpdateBody",
]


@dataclass(slots=True)
class NoOp:
    """Changes nothing."""


class IndexWrite(NamedTuple):
    """Sets the row of a secondary index to exactly ``cells``, or deletes it if they are None.

    ``table`` numbers the index's rows. If ``local``, they are in this shard.
    """

    table: int
    local: bool
    key: list[bytes]
    cells: list[Cell] | None


NO_INDEXES: Sequence[IndexWrite] = ()


class Kept(NamedTuple):
    """What a change tells of the stream's original columns, beside ``before``.

    ``existed``: the row existed before the change. ``absent``: the columns without a visible cell
    before it. ``after``: the newest cells after it that do not follow from the change
    (``kept.py``), a delete if there is none.
    """

    existed: bool
    absent: Sequence[bytes]
    after: Sequence[Cell]


@dataclass(slots=True)
class PutBody:
    """Sets the row to exactly ``cells``.

    ``before`` has the original columns if the stream keeps them. ``kept`` has the rest of them, and
    is None in a record of an earlier schema.
    """

    key: list[bytes]
    cells: Sequence[Cell]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES
    kept: Kept | None = None


@dataclass(slots=True)
class UpdateBody:
    """Merges ``cells`` into the row."""

    key: list[bytes]
    cells: Sequence[Cell]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES
    kept: Kept | None = None


@dataclass(slots=True)
class DeleteBody:
    """Deletes the row."""

    key: list[bytes]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES
    kept: Kept | None = None


@dataclass(slots=True)
class StreamOptions:
    """A table's enabled stream. ``columns`` are those whose old values it includes."""

    id: str
    enabled_at_us: int
    expiration_hours: int
    columns: list[str]


@dataclass(slots=True)
class Options:
    """The table's options from here on; ``time_to_live`` in seconds, -1 for no expiry."""

    time_to_live: int
    max_versions: int
    stream: StreamOptions | None


@dataclass(slots=True)
class Reclaim:
    """Removes versions that no reader can see, from ``first`` to ``last``, inclusive."""

    first: bytes
    last: bytes
    version_cutoff_ms: int
    max_versions: int


@dataclass(slots=True)
class Seal:
    """Ends the shard; ``plan`` is the change of shards that follows."""

    plan: str


@dataclass(slots=True)
class SnapshotRow:
    """One row of a snapshot."""

    key: list[bytes]
    cells: Sequence[Cell]


@dataclass(slots=True)
class Snapshot:
    """All rows as of this record."""

    rows: list[SnapshotRow]


@dataclass(slots=True)
class Commit:
    """Marks this group's records as the transaction ``id``, which its client knows."""

    id: str


@dataclass(slots=True)
class IndexBuild:
    """Changes of an index for rows that existed before it.

    ``following`` is the encoded key at which the next slice begins, None at the shard's end.
    """

    table: int
    following: bytes | None
    indexes: Sequence[IndexWrite]


@dataclass(slots=True)
class IndexFeed:
    """In an index's own log: changes from the log of the shard ``source``.

    ``following`` is the offset there at which the next slice begins. ``stamp`` is the commit stamp
    of the last entry that changed the index, 0 for none.
    """

    source: str
    following: int
    stamp: int
    indexes: Sequence[IndexWrite]


class CopyEntry(NamedTuple):
    """A stored chunk, or a committed transaction, by its key in the store."""

    key: bytes
    value: bytes


@dataclass(slots=True)
class CopyBody:
    """Rows of ``source``, which this shard replaces, as they are stored there.

    They include everything up to ``offset`` of the source's log. With ``complete`` the source has
    ended there, and nothing is missing.
    """

    source: str
    offset: int
    complete: bool
    entries: Sequence[CopyEntry]


@dataclass(slots=True)
class SourcePosition:
    """Marks this group's rows as a source's, and records how far the log has that source.

    The log has every row up to ``position`` whose encoded key is in begin <= key < end; an empty
    end is unbounded.
    """

    source: str
    begin: bytes
    end: bytes
    position: bytes


Body = (
    NoOp
    | PutBody
    | UpdateBody
    | DeleteBody
    | Options
    | Reclaim
    | Seal
    | Snapshot
    | Commit
    | IndexBuild
    | IndexFeed
    | CopyBody
    | SourcePosition
)
