"""What the records of a shard's log say: one class for each body.

Their bytes, and the envelope around them, are in ``record.py``.
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
    """A secondary index's row becomes exactly ``cells``, or is gone: None.

    ``table`` numbers the index's rows. They are the shard's own where it is ``local``.
    """

    table: int
    local: bool
    key: list[bytes]
    cells: list[Cell] | None


NO_INDEXES: Sequence[IndexWrite] = ()


@dataclass(slots=True)
class PutBody:
    """The row becomes exactly ``cells``. ``before`` is the former row where a stream wants it."""

    key: list[bytes]
    cells: Sequence[Cell]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES


@dataclass(slots=True)
class UpdateBody:
    """``cells`` are merged into the row."""

    key: list[bytes]
    cells: Sequence[Cell]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES


@dataclass(slots=True)
class DeleteBody:
    """The row is gone."""

    key: list[bytes]
    before: Sequence[Cell] | None = None
    indexes: Sequence[IndexWrite] = NO_INDEXES


@dataclass(slots=True)
class StreamOptions:
    """A table's stream while it is on. ``columns`` are those whose former values are kept."""

    id: str
    enabled_at_us: int
    expiration_hours: int
    columns: list[str]


@dataclass(slots=True)
class Options:
    """The table's options from here on; ``time_to_live`` in seconds, -1 for ever."""

    time_to_live: int
    max_versions: int
    stream: StreamOptions | None


@dataclass(slots=True)
class Reclaim:
    """Versions that no reader saw any more were removed from ``first`` to ``last``, inclusive."""

    first: bytes
    last: bytes
    version_cutoff_ms: int
    max_versions: int


@dataclass(slots=True)
class Seal:
    """The shard ends here; ``plan`` says what follows it."""

    plan: str


@dataclass(slots=True)
class SnapshotRow:
    """One row of a snapshot."""

    key: list[bytes]
    cells: Sequence[Cell]


@dataclass(slots=True)
class Snapshot:
    """Every row as of here."""

    rows: list[SnapshotRow]


@dataclass(slots=True)
class Commit:
    """The records of this group are the transaction ``id``, as its client knows it."""

    id: str


@dataclass(slots=True)
class IndexBuild:
    """An index learns of rows that were there before it.

    ``following`` is the encoded key at which the next slice begins, None at the shard's end.
    """

    table: int
    following: bytes | None
    indexes: Sequence[IndexWrite]


@dataclass(slots=True)
class IndexFeed:
    """In an index's own log: what it learned from the log of the shard ``source``.

    ``following`` is the offset there at which the next slice begins, ``stamp`` the commit stamp of
    the last entry learned from, 0 for none.
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
    """Rows of ``source``, which this shard takes the place of, as they are stored there.

    ``offset`` is that of the source's log up to which they have all that was written. With
    ``complete`` the source has ended there, and nothing is missing.
    """

    source: str
    offset: int
    complete: bool
    entries: Sequence[CopyEntry]


@dataclass(slots=True)
class SourcePosition:
    """The rows of this group are a source's, and the log now has all that it gave so far.

    That is every row up to ``position`` whose encoded key is in begin <= key < end; an empty end is
    unbounded.
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
