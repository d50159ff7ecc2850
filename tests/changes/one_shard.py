"""A source of one shard with a few changes, one a page; and leases that answer when they may."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from rowtide.client.changes.leases import MemoryLeases, ReaderLease
from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.core.records.change import PUT_ROW, ROW, Change, ChangeParts, ChangeTable
from rowtide.core.records.position import decode_position, encode_position
from rowtide.core.values.errors import StoreError

__all__ = ["LEASE", "OneShard", "SlowLeases"]

LEASE = ReaderLease("s1", counter=1, owner="me", position="rt1:s1:1:0")
TABLE = ChangeTable("t", (b"pk",))


class OneShard:
    """``s1`` with ``count`` changes, which ends with the last; a table of one row.

    Reads answer once ``go``. What is in ``faults`` is raised at a place of the log, once.
    """

    def __init__(self, count: int, faults: Mapping[int, StoreError] | None = None) -> None:
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()
        self.asked_for: list[int] = []
        """The places at which reads began."""
        self._count = count
        self._faults = dict(faults or {})

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        return 0

    async def shards(self) -> list[SourceShard]:
        return [SourceShard("s1", (), b"", b"")]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return LEASE.position

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        at = decode_position(position)
        self.asked_for.append(at.offset)
        await self._let_go()
        if at.offset in self._faults:
            raise self._faults.pop(at.offset)
        following = at.offset + 1
        changes = [Change(PUT_ROW, TABLE, "s1", at.offset, at.offset)][: self._count]
        if following >= self._count:
            return ChangePage(changes, None, at_end=True)
        return ChangePage(changes, encode_position(at._replace(offset=following)), at_end=False)

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        await self._let_go()
        row = Change.of(ROW, TABLE, "s1", self._count, ChangeParts([], [], None))
        return RowPage([row], self._count, None)

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        pass

    async def _let_go(self) -> None:
        self.asked.set()
        await self.go.wait()


class SlowLeases(MemoryLeases):
    """Leases whose changes wait for ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row once it may be."""
        self.asked.set()
        await self.go.wait()
        return await super().change(old, new)
