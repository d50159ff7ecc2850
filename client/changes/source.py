"""Where a change reader gets a table's shards, changes and rows.

There are two sources: the Stream API (``client/changes/api.py``), and Kafka for the changes with
the API for the rest (``connectors/runtime/kafka_source.py``). Both use the iterators of the Stream
API as positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rowtide.core.records.change import Change

__all__ = ["ChangePage", "ChangeSource", "RowPage", "SourceShard"]


class SourceShard(NamedTuple):
    """A shard that can still be read: its parents, and its range of encoded keys.

    ``begin`` <= key < ``end``; an empty ``end`` is unbounded. Parents are named also if they are no
    longer listed.
    """

    shard_id: str
    parents: tuple[str, ...]
    begin: bytes
    end: bytes


class ChangePage(NamedTuple):
    """Changes of one shard in order, and the next position: None at the shard's end.

    ``at_end``: there was no later change after the read had begun.
    """

    changes: Sequence[Change]
    following: str | None
    at_end: bool


class RowPage(NamedTuple):
    """Rows of one shard as of the commit stamp ``stamp``: with no later commit.

    ``following`` is the encoded key at which the next page begins, None at the end of the range.
    """

    rows: Sequence[Change]
    stamp: int
    following: bytes | None


class ChangeSource(Protocol):
    """One table's stream. Every method raises ``StoreError``; retry after ``Unavailable``."""

    async def table_name(self) -> str:
        """Return the table's name."""
        ...

    async def now_us(self) -> int:
        """Return the server's time in Unix microseconds."""
        ...

    async def shards(self) -> list[SourceShard]:
        """Return the stream's shards that are still kept, parents before children."""
        ...

    async def position(self, shard_id: str, since_us: int | None) -> str:
        """Return the position of a shard's first change since a time; None: the oldest kept."""
        ...

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        """Return changes from a position on. If there is none, wait up to ``wait_s`` for one.

        Raises ``LogTrimmed`` if the position is no longer kept.
        """
        ...

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        """Return a page of an open shard's rows from ``begin`` on and before ``end``.

        Raises OTSObjectNotExist if the shard has ended.
        """
        ...

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        """Report a consumer's positions for monitoring. Nothing depends on it."""
        ...
