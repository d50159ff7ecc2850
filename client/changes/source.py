"""Where a change reader gets a table's shards, changes and rows from.

There are two: the Stream API (``client/changes/api.py``), and Kafka for the changes with the API
for the rest (``connectors/runtime/kafka_source.py``). Both have the same positions: the iterators
of the Stream API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rowtide.core.records.change import Change

__all__ = ["ChangePage", "ChangeSource", "RowPage", "SourceShard"]


class SourceShard(NamedTuple):
    """A shard that may still be read: its parents, and the encoded keys it holds.

    ``begin`` <= key < ``end``; an empty end is unbounded. Parents that are listed no more are
    still named.
    """

    shard_id: str
    parents: tuple[str, ...]
    begin: bytes
    end: bytes


class ChangePage(NamedTuple):
    """Changes of one shard in order. ``following`` is where to go on, None at the shard's end.

    ``at_end`` says that, after the read had begun, there was nothing behind these.
    """

    changes: Sequence[Change]
    following: str | None
    at_end: bool


class RowPage(NamedTuple):
    """Rows of one shard as of the commit stamp ``stamp``: all of its commits up to it, no other.

    ``following`` is the encoded key at which the next page begins, None where the range is read.
    """

    rows: Sequence[Change]
    stamp: int
    following: bytes | None


class ChangeSource(Protocol):
    """One table's stream. Every method raises ``StoreError``; ``Unavailable`` is worth a retry."""

    async def table_name(self) -> str:
        """Return the table's name."""
        ...

    async def now_us(self) -> int:
        """Return the server's time in Unix microseconds."""
        ...

    async def shards(self) -> list[SourceShard]:
        """Return the shards of the stream that are still kept, parents before children."""
        ...

    async def position(self, shard_id: str, since_us: int | None) -> str:
        """Return where a shard's first change at or after a time stands; None: the oldest kept."""
        ...

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        """Return changes from a position on; where there is none, wait up to ``wait_s`` for one.

        Raises ``LogTrimmed`` where the position is kept no more.
        """
        ...

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        """Return a page of the rows that an open shard has from ``begin`` on, before ``end``.

        Raises OTSObjectNotExist where the shard has ended.
        """
        ...

    async def finished(self, consumer: str, positions: Sequence[str]) -> None:
        """Note how far a consumer is, for people who watch; nobody relies on it."""
        ...
