"""A table as ``verify`` compares a sink with it, and how far the sink's connector is.

A page comes with the place where its shard's log ended after it was read. A connector that has
read the log up to there has given its sink whatever the page shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rowtide.connectors.rows import SinkRow
from rowtide.connectors.verify.comparison import ReferencePage
from rowtide.core.change import Change
from rowtide.core.errors import Rejected, Unavailable
from rowtide.core.key_ranges import Range
from rowtide.core.position import decode_position
from rowtide.core.variant import Scalar
from rowtide.stream.change_leases import Lease, Leases
from rowtide.stream.change_source import ChangeSource, RowPage, SourceShard

__all__ = ["Prepare", "TablePages"]

LOOK_S = 0.1
END_US = 2**63 - 1
"""A time after every change: the end of a log as it is now."""

Prepare = Callable[[SinkRow], SinkRow | None]
"""What the connector makes of a row before its sink gets it; None: the sink does not."""


class Place(NamedTuple):
    """Where a shard's log ended."""

    shard_id: str
    offset: int


class TablePages:
    """The rows of the table that ``source`` is of, as the connector of ``leases`` passes them on.

    ``wait_s`` is for how long the connector may take to get to a place.
    """

    def __init__(
        self,
        source: ChangeSource,
        leases: Leases,
        *,
        prepare: Prepare = lambda row: row,
        wait_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._leases = leases
        self._prepare = prepare
        self._wait_s = wait_s
        self._clock = clock
        self._shards: list[SourceShard] = []

    async def open(self) -> None:
        """Wait until the connector has everything that there is now."""
        await self._leases.open(await self._source.table_name())
        self._shards = await self._open_shards()
        await self.reached([await self._place(shard.shard_id) for shard in self._shards])

    async def page(self, within: Range, *, limit: int) -> ReferencePage:
        """Return a page, see ``Reference.page``."""
        begin, end = within
        while True:
            shard = self._shard_of(begin)
            last = _least(shard.end, end)
            try:
                page = await self._source.rows(shard.shard_id, begin, last, limit=limit)
                place = await self._place(shard.shard_id)
            except Rejected as error:
                if error.code != "OTSObjectNotExist":
                    raise
                self._shards = await self._open_shards()  # It was split, merged or moved.
                continue
            covers = begin, last if page.following is None else page.following
            return ReferencePage(self._rows(page), covers, page.stamp, place)

    async def reached(self, places: Iterable[object]) -> None:
        """Wait for the connector, see ``Reference.reached``."""
        wanted: dict[str, int] = {}
        for place in places:
            assert isinstance(place, Place), place
            wanted[place.shard_id] = max(place.offset, wanted.get(place.shard_id, 0))
        until_s = self._clock() + self._wait_s
        while True:
            behind = _behind(wanted, await self._leases.all())
            if not behind:
                return
            if self._clock() > until_s:
                raise Unavailable(
                    f"Consumer {self._leases.consumer} has not come so far in {self._wait_s:g} s: "
                    f"{'; '.join(behind)}"
                )
            await asyncio.sleep(LOOK_S)

    def _rows(self, page: RowPage) -> dict[bytes, Mapping[str, Scalar]]:
        found: dict[bytes, Mapping[str, Scalar]] = {}
        for change in page.rows:
            row = self._prepare(_row(change))
            if row is not None and row.columns is not None:
                found[row.key_bytes] = row.columns
        return found

    async def _open_shards(self) -> list[SourceShard]:
        """Return the shards that hold rows now: those that are nobody's parents."""
        shards = await self._source.shards()
        parents = {parent for shard in shards for parent in shard.parents}
        return [shard for shard in shards if shard.shard_id not in parents]

    def _shard_of(self, key: bytes) -> SourceShard:
        return next(s for s in self._shards if s.begin <= key and (not s.end or key < s.end))

    async def _place(self, shard_id: str) -> Place:
        return Place(shard_id, decode_position(await self._end(shard_id)).offset)

    async def _end(self, shard_id: str) -> str:
        return await self._source.position(shard_id, END_US)


def _row(change: Change) -> SinkRow:
    return SinkRow(change.key, change.key_bytes, change.stamp, change.columns, change.kind)


def _least(end: bytes, other: bytes) -> bytes:
    """Return the end that comes first; an empty one is no end."""
    return min(end, other) if end and other else end or other


def _behind(wanted: Mapping[str, int], leases: Mapping[str, Lease]) -> list[str]:
    """Return for each shard that is not read up to its place how far it is."""
    found: list[str] = []
    for shard_id, offset in wanted.items():
        lease = leases.get(shard_id)
        if lease is None:
            found.append(f"shard {shard_id} is not begun")
        elif lease.pending:
            found.append(f"shard {shard_id} has {len(lease.pending)} ranges of rows to read")
        elif not lease.ended and decode_position(lease.position).offset < offset:
            at = decode_position(lease.position).offset
            found.append(f"shard {shard_id} is at {at} of {offset}")
    return found
