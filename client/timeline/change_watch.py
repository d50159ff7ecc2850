"""Waits for a change of rows whose keys begin with given values.

A watch says only which rows may have changed: the reader then reads the rows, by their keys, from
where it was. So a change that the watch reports twice, or as one of several, does no harm. The
watch must be begun before the rows are read: then no later change is missed.

Keys of one shard are watched by one read, up to ``PREFIXES_AT_ONCE``: a read of its own for each
key would make the server test each change once for each key.

A table without a stream is read again every ``POLL_S`` seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from rowtide.client.async_client import AsyncClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.source import SourceShard
from rowtide.client.predicates import Predicate, column
from rowtide.core.values import key, variant
from rowtide.core.values.errors import (
    LogTrimmed,
    OutcomeUnknown,
    StoreError,
    Unavailable,
    first_failure,
)
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

PREFIXES_AT_ONCE = 16
"""Prefixes of one column that one filter can test: it has 32 nodes at most."""

CHANGES_AT_ONCE = 100


class ChangeWatch:
    """Watches the rows of ``table`` whose key begins with one of ``prefixes``.

    A prefix has the partition key at least. Such rows are in one shard: a partition key is never
    split. When its shard ends, the watch goes on in the shard that has the key now.
    """

    def __init__(
        self, client: AsyncClient, table: str, prefixes: Sequence[Mapping[str, Scalar]]
    ) -> None:
        self._client = client
        self._table = table
        self._prefixes = [_Prefix.of(number, prefix) for number, prefix in enumerate(prefixes)]
        self._parts: list[_Part] = []
        self._has_begun = False

    async def begin(self) -> bool:
        """Watch from now on; return False if the watch has begun before. Raises ``StoreError``."""
        if self._has_begun:
            return False
        described = await self._client.describe_table(self._table)
        self._parts = []
        if described.stream_hours:
            source = ApiSource(self._client.endpoint, self._table)
            shards = await source.shards()
            by_shard: dict[str, list[_Prefix]] = {}
            for prefix in self._prefixes:
                by_shard.setdefault(_find_shard(shards, prefix.encoded).shard_id, []).append(prefix)
            self._parts = [
                await self._begin_part(shard_id, its[begin : begin + PREFIXES_AT_ONCE])
                for shard_id, its in by_shard.items()
                for begin in range(0, len(its), PREFIXES_AT_ONCE)
            ]
        self._has_begun = True
        return True

    async def _begin_part(self, shard_id: str, prefixes: Sequence[_Prefix]) -> _Part:
        tests = reduce(or_, [prefix.test for prefix in prefixes])
        source = ApiSource(self._client.endpoint, self._table, filter=tests.encode())
        return _Part(source, prefixes, await source.position(shard_id, PRESENT_END))

    async def wait(self) -> None:
        """Return when a row may have changed. Begin again after a failure."""
        while not await self.wait_once():
            pass

    async def wait_once(self) -> frozenset[int]:
        """Return the numbers of the prefixes whose rows may have changed; none after ``WAIT_S``.

        Begin again after a failure: changes may have been missed.
        """
        assert self._has_begun, "a watch is begun before it waits"
        everything = frozenset(range(len(self._prefixes)))
        if not self._parts:
            await asyncio.sleep(POLL_S)
            return everything
        try:
            changed = await self._read_any()
        except LogTrimmed:
            self.drop()  # The reader was away for longer than the stream keeps changes.
            return everything
        if any(part.position is None for part in self._parts):
            self.drop()  # A shard has ended.
            return everything
        return changed

    async def _read_any(self) -> frozenset[int]:
        """Read the parts until one has an answer; return what has changed in any of them."""
        if len(self._parts) == 1:
            return await self._parts[0].read()
        try:
            async with asyncio.TaskGroup() as tasks:
                reads = [tasks.create_task(part.read(), name="watch") for part in self._parts]
                await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
                for read in reads:
                    read.cancel()
        except BaseExceptionGroup as failures:
            raise first_failure(failures) from None
        # A read that ended together with the first one has moved its position, too.
        return frozenset().union(*(read.result() for read in reads if not read.cancelled()))

    def drop(self) -> None:
        """Forget the position: the next ``begin`` finds the shards again."""
        self._has_begun = False


class _Prefix(NamedTuple):
    """A prefix of keys by its number in the watch, encoded, and as a test of rows."""

    number: int
    encoded: bytes
    test: Predicate

    @classmethod
    def of(cls, number: int, prefix: Mapping[str, Scalar]) -> _Prefix:
        encoded = key.encode([variant.encode(value) for value in prefix.values()])
        return cls(number, encoded, reduce(and_, [column(n) == v for n, v in prefix.items()]))


@dataclass(slots=True)
class _Part:
    """Prefixes of one shard that one filter tests, and the position in the shard."""

    source: ApiSource
    prefixes: Sequence[_Prefix]
    position: str | None
    """None once the shard has ended."""

    async def read(self) -> frozenset[int]:
        """Return the numbers of the prefixes whose rows have changed; none after ``WAIT_S``."""
        assert self.position is not None, "a watch of a shard that has ended begins again"
        page = await self.source.read(self.position, limit=CHANGES_AT_ONCE, wait_s=WAIT_S)
        self.position = page.following
        changed = {change.key_bytes for change in page.changes}
        return frozenset(
            prefix.number
            for prefix in self.prefixes
            if any(one.startswith(prefix.encoded) for one in changed)
        )


def _find_shard(shards: Sequence[SourceShard], encoded: bytes) -> SourceShard:
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
