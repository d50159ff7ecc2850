"""The closed shards of a slot, each with its reason.

Most often a shard's log lacks acknowledged entries. A deposed broker that does not know
it reports any log without the entries that came since. So such a log is checked again at
an interval: its ends, and the entry at the end of the rows, because it may have been
filled. Once no closed shard of the slot lacks entries, the slot opens again. Otherwise an
operator decides.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Set

from rowtide.core.records.record import CorruptRecord
from rowtide.stream.shard.appender import LogShortened

__all__ = ["ClosedShards"]

logger = logging.getLogger(__name__)


class ClosedShards(dict[str, str]):
    """Why a shard stays closed, by shard id."""

    def __init__(self) -> None:
        super().__init__()
        self._short: set[str] = set()

    def close(self, shard_id: str, error: LogShortened | CorruptRecord) -> None:
        """Keep the shard closed: until its log is complete, or an operator decides."""
        logger.critical("shard %s stays closed: %s", shard_id, error)
        self[shard_id] = str(error)
        if isinstance(error, LogShortened):
            self._short.add(shard_id)

    def keep(self, shard_ids: Set[str]) -> None:
        """Forget all other shards: their tables are gone."""
        for shard_id in self.keys() - shard_ids:
            del self[shard_id]

    def clear(self) -> None:
        """Forget all of them: the slot closes."""
        super().clear()
        self._short.clear()

    async def can_reopen(self, has_all_entries: Callable[[str], Awaitable[bool]]) -> bool:
        """True if there are closed shards, and none of their logs lacks entries any more.

        The child of a closed shard has a complete log, and a check does not show if a log
        is readable. So all of them count.
        """
        if not self or not self.keys() <= self._short:
            return False
        return all([await has_all_entries(shard_id) for shard_id in list(self)])
