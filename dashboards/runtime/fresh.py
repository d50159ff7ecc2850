"""Whether numbers include everything that was acknowledged before a moment.

A write is acknowledged once it is in the log of its shard. So it lies before the end that the log
has at any later moment. Numbers include it once the position of its shard is at this end, or once
no change lies between the two: no-ops and other hidden records move no position.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowtide.client.changes.api import ApiSource
from rowtide.core.records.position import decode_position
from rowtide.core.values.errors import LogTrimmed
from rowtide.dashboards.runtime.state_rows import PartPosition

__all__ = ["FreshWish"]

END_US = 2**63 - 1


class FreshWish:
    """The ends of a table's logs as of ``begin``, and how many of them are included so far.

    Raises ``StoreError`` if the source does.
    """

    def __init__(self, source: ApiSource) -> None:
        self._source = source
        self._ends: dict[str, int] = {}
        self._missing: dict[str, str] = {}
        """Positions at which a change was found that is wanted, by shard."""
        self._enough: dict[str, int] = {}
        """Offsets from which on a position includes all that is wanted, by shard."""

    async def begin(self) -> None:
        """Note the present ends. Everything acknowledged before the call lies before them."""
        await self._add_shards()

    async def _add_shards(self) -> bool:
        """Note the ends of shards that are not known; True if there was one."""
        names = [shard.shard_id for shard in await self._source.shards()]
        new = [name for name in names if name not in self._ends]
        for name in new:
            end = decode_position(await self._source.position(name, END_US))
            self._ends[name] = end.offset
        return bool(new)

    async def is_met(self, positions: Mapping[str, PartPosition]) -> bool:
        """True if numbers at these positions include everything.

        The list of shards may be older than a split. Its children are looked for once all that is
        known is included.
        """
        while True:
            for name, end in self._ends.items():
                at = positions.get(name)
                if at is None or at.pending or self._missing.get(name) == at.position:
                    return False
                offset = decode_position(at.position).offset
                if offset >= self._enough.get(name, end):
                    continue
                if await self._lacks_change(at.position, end):
                    self._missing[name] = at.position
                    return False
                self._enough[name] = offset
            if not await self._add_shards():
                return True

    async def _lacks_change(self, position: str, end: int) -> bool:
        """True if a change lies between a position and an end."""
        while decode_position(position).offset < end:
            try:
                page = await self._source.read(position, limit=1, wait_s=0.0)
            except LogTrimmed:
                return True  # The dashboard will be built again.
            if page.changes:
                return page.changes[0].sequence < end
            if page.following is None or page.at_end:
                return False
            position = page.following
        return False
