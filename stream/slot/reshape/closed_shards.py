"""The shards of a slot that stay closed, each with its reason.

Most often its log lacks what was acknowledged. A broker that was deposed, and does not know it,
tells of any log that it lacks what came since; so such a log is looked at again now and then: at
its ends, and at the entry where the rows end, for it may have been filled up.
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
        """Leave a shard closed, of which somebody must decide."""
        logger.critical("shard %s stays closed: %s", shard_id, error)
        self[shard_id] = str(error)
        if isinstance(error, LogShortened):
            self._short.add(shard_id)

    def keep(self, shard_ids: Set[str]) -> None:
        """Forget those that are none of these: their tables are gone."""
        for shard_id in self.keys() - shard_ids:
            del self[shard_id]

    def clear(self) -> None:
        """Forget all of them: the slot closes."""
        super().clear()
        self._short.clear()

    async def were_mistaken(self, lacks_nothing: Callable[[str], Awaitable[bool]]) -> bool:
        """True if there are closed shards, and none of their logs lacks anything any more.

        One that came of another, which is closed, has a log that lacks nothing; and what is in a
        log that can't be read is not told by a look. So all of them count.
        """
        if not self or not self.keys() <= self._short:
            return False
        return all([await lacks_nothing(shard_id) for shard_id in list(self)])
