"""A table for comparison with a sink, and how far the sink's connector is.

Each page has the place where its shard's log ended after it was read. A connector that
has read the log up to there has given its sink everything that the page shows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rowtide.client.changes.leases import Leases, ReaderLease
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.start import current_leases
from rowtide.connectors.rows import SinkRow
from rowtide.connectors.verify.comparison import Columns, ReferencePage
from rowtide.connectors.verify.table_rows import TableRows, TableSlice
from rowtide.core.records.change import Change
from rowtide.core.records.position import decode_position
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.key_ranges import Range

__all__ = ["Prepare", "TablePages"]

LOOK_S = 0.1
END_US = 2**63 - 1
"""A time after every change: the end of a log as it is now."""

Prepare = Callable[[SinkRow], SinkRow | None]
"""What the connector makes of a row before its sink gets it. None: the sink gets nothing."""


class ShardEnd(NamedTuple):
    """The end of a shard's log."""

    shard_id: str
    offset: int


class TablePages:
    """The rows of ``source``'s table, as the connector of ``leases`` passes them on.

    ``wait_s`` is how long the connector may take to reach a place.
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
        self._rows = TableRows(source)
        self._leases = leases
        self._prepare = prepare
        self._wait_s = wait_s
        self._clock = clock

    async def open(self) -> None:
        """Wait until the connector has passed on everything that the table has now."""
        shards = await self._rows.shards()
        await self.wait_for_places([await self._place(shard.shard_id) for shard in shards])

    async def page(self, within: Range, *, limit: int) -> ReferencePage:
        """Return a page, see ``Reference.page``."""
        found = await self._rows.slice(within, limit=limit)
        place = await self._place(found.shard_id)
        return ReferencePage(self._prepare_rows(found), found.covers, found.stamp, place)

    async def wait_for_places(self, places: Iterable[object]) -> None:
        """Wait for the connector, see ``Reference.wait_for_places``."""
        wanted: dict[str, int] = {}
        for place in places:
            assert isinstance(place, ShardEnd), place
            wanted[place.shard_id] = max(place.offset, wanted.get(place.shard_id, 0))
        until_s = self._clock() + self._wait_s
        table = await self._source.table_name()
        while True:
            behind = await self._list_behind(table, wanted)
            if not behind:
                return
            if self._clock() > until_s:
                raise Unavailable(
                    f"Consumer {self._leases.consumer} has not caught up in {self._wait_s:g} s: "
                    f"{'; '.join(behind)}"
                )
            await asyncio.sleep(LOOK_S)

    async def _list_behind(self, table: str, wanted: Mapping[str, int]) -> list[str]:
        """Return what the connector has still to read, in words, or why it is not known now."""
        try:
            rows = await self._leases.read(table)
        except Unavailable as error:  # Its first process may just create the table of leases.
            return [error.message]
        return _behind(wanted, current_leases(rows))

    def _prepare_rows(self, found: TableSlice) -> dict[bytes, Columns]:
        rows = (self._prepare(_row(change)) for change in found.rows)
        return {r.key_bytes: r.columns for r in rows if r is not None and r.columns is not None}

    async def _place(self, shard_id: str) -> ShardEnd:
        end = await self._source.position(shard_id, END_US)
        return ShardEnd(shard_id, decode_position(end).offset)


def _row(change: Change) -> SinkRow:
    return SinkRow(change.key, change.key_bytes, change.stamp, change.columns, change.kind)


def _behind(wanted: Mapping[str, int], leases: Mapping[str, ReaderLease]) -> list[str]:
    """Return a text for each shard that is not read up to its place."""
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
