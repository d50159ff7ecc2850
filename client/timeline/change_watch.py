"""Waits for a change of rows whose key begins with given values.

A watch says only that something changed: the reader then reads the rows, by their keys, from where
it was. So a change that the watch reports twice, or as one of several, does no harm. The watch must
be begun before the rows are read: then no later change is missed.

A table without a stream is read again every ``POLL_S`` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import reduce
from operator import and_

from rowtide.client.async_client import AsyncClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import SourceShard
from rowtide.client.predicates import column
from rowtide.core.values import key, variant
from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.key_ranges import holds
from rowtide.core.values.variant import Scalar

__all__ = ["ChangeWatch", "Outage"]

POLL_S = 0.5
WAIT_S = 10.0
"""How long the server delays an answer without a change."""

PRESENT_END = 2**63 - 1
"""A time in microseconds after every change: the stream's present end."""

OUTAGE_S_MAX = 60.0
"""A follower that cannot read for this long reports the failure."""

PAUSE_S = 0.2


class ChangeWatch:
    """Watches the rows of ``table`` whose key begins with ``prefix``, the partition key at least.

    All of them are in one shard: a partition key is never split. When its shard ends, the watch
    goes on in the shard that has the key now.
    """

    def __init__(self, client: AsyncClient, table: str, prefix: Mapping[str, Scalar]) -> None:
        self._client = client
        self._table = table
        self._key = key.encode([variant.encode(value) for value in prefix.values()])
        tests = [column(name) == value for name, value in prefix.items()]
        self._filter = reduce(and_, tests).encode()
        self._source: ApiSource | None = None
        self._position: str | None = None
        self._has_begun = False

    async def begin(self) -> None:
        """Watch from now on; do nothing if the watch has begun. Raises ``StoreError``."""
        if self._has_begun:
            return
        described = await self._client.describe_table(self._table)
        self._source, self._position = None, None
        if described.stream_hours:
            self._source = ApiSource(self._client.endpoint, self._table, filter=self._filter)
            shard = _find_shard(await self._source.shards(), self._key)
            self._position = await self._source.position(shard.shard_id, PRESENT_END)
        self._has_begun = True

    async def wait(self) -> None:
        """Return when a row may have changed. Begin again after a failure."""
        assert self._has_begun, "a watch is begun before it waits"
        if self._source is None:
            await asyncio.sleep(POLL_S)
            return
        try:
            while self._position is not None:
                page = await self._source.read(self._position, limit=100, wait_s=WAIT_S)
                self._position = page.following
                if page.changes:
                    return
        except LogTrimmed:
            pass  # The reader was away for longer than the stream keeps changes.
        self.drop()

    def drop(self) -> None:
        """Forget the position: the next ``begin`` finds the shard again."""
        self._has_begun = False


def _find_shard(shards: list[SourceShard], encoded: bytes) -> SourceShard:
    """Return the shard that has a key now: the last one listed, as parents come first."""
    found = [shard for shard in shards if holds(((shard.begin, shard.end),), encoded)]
    if not found:
        raise Unavailable("No shard of the stream has the key at present.")
    return found[-1]


class Outage:
    """The time for which a follower could not read. Reads may be repeated after any failure."""

    def __init__(self) -> None:
        self._began_s: float | None = None

    def end(self) -> None:
        """Note that a read succeeded."""
        self._began_s = None

    async def pause(self, failure: StoreError) -> None:
        """Wait before the next attempt. Raises the failure once the outage is too long."""
        assert isinstance(failure, Unavailable | OutcomeUnknown), "others fail again"
        now_s = time.monotonic()
        if self._began_s is None:
            self._began_s = now_s
        if now_s - self._began_s > OUTAGE_S_MAX:
            raise failure
        await asyncio.sleep(PAUSE_S)
