"""Reads that allow staleness: answered here from a copy of the rows that is young enough.

A request's header limits the age of what it reads. The request is answered here at once
if each shard that it touches is owned here, or has a copy here that is young enough. Then
no other worker is involved. In every other case the request is answered as if it had no
such header.

The catalog must be as young: a table that was dropped or created again counts as a
change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Elsewhere, Rejected, StoreError, invalid
from rowtide.core.values.schema import LOCAL, ShardRange, Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.row_requests import parse, read_key
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.http.tally import BoundedHandler, Handler
from rowtide.stream.measures.clock import lease_clock
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_shard import StandbyShard

__all__ = ["BoundedReads", "Copies", "staleness_s"]

STALENESS_MS_MAX = 3_600_000
STALENESS_S_MIN = 0.02
"""No view stays younger than this: a request with a lower limit goes to the owner at once."""

CATALOG_S = 0.1
"""Time that the catalog's broker may take; while it is away, the owners' leases may still hold."""

STALE_READS = tuple(name for name, spec in OPERATIONS.items() if spec.allows_stale)


def staleness_s(limit_ms: bytes) -> float:
    """Return the allowed age of what is read, in seconds. Raises OTSParameterInvalid."""
    if not limit_ms.isdigit() or len(limit_ms) > 7 or int(limit_ms) > STALENESS_MS_MAX:
        text = limit_ms.decode("utf-8", "replace")
        raise invalid(f"The x-ots-max-staleness-ms must be 0 to {STALENESS_MS_MAX}, but is {text}.")
    return int(limit_ms) / 1000


class Copies(Directory):
    """The directory for one request that may be answered from copies."""

    def __init__(
        self,
        strong: Directory,
        slots: Mapping[int, Slot],
        standbys: Mapping[int, Standby],
        age_s_max: float,
        built_age_s: Callable[[int], float],
    ) -> None:
        super().__init__(strong.catalog, slots, strong.limits, strong.clock_us, strong.consumption)
        self._standbys = standbys
        self._age_s_max = age_s_max
        self._built_age_s = built_age_s
        self.used: dict[str, StandbyShard] = {}
        """The copies that were young enough: they stay so for as long as the request takes."""

    def check_index_read(self, table: Table, *, within_transaction: bool = False) -> None:
        """Check as ``Directory`` does, and lower the allowed age for a young local index.

        A copy from before a local index was built lacks rows of any age in it.
        """
        super().check_index_read(table, within_transaction=within_transaction)
        main = self.catalog.tables_by_id.get(table.main)
        index = None if main is None else main.index(table.name)
        if index is None or index.kind != LOCAL:
            return
        age_s = self._built_age_s(index.table_id)
        if age_s < self._age_s_max:
            self._age_s_max = age_s
            self.used.clear()  # They may be too old for the reads from here on.

    def shard(self, shard: ShardRange) -> ShardOwner:
        """Return a readable shard: the open shard, or a copy that is young enough.

        Raises ``Elsewhere`` if neither is here.
        """
        if shard.slot in self._slots:
            return super().shard(shard)
        view = self.used.get(shard.shard_id)
        if view is None:
            standby = self._standbys.get(shard.slot)
            view = None if standby is None else standby.view(shard.shard_id, self._age_s_max)
            if view is None:
                raise Elsewhere(shard.slot)
            self.used[shard.shard_id] = view
        return cast(ShardOwner, view)  # A reader uses both in the same way.


class BoundedReads:
    """Answers such reads. It refreshes ``catalog`` if that was not read lately."""

    def __init__(
        self,
        directory: Directory,
        slots: Mapping[int, Slot],
        standbys: Mapping[int, Standby],
        catalog: CatalogOwner,
        counts: Counts,
        clock_s: Callable[[], float] = lease_clock,
    ) -> None:
        self._clock_s = clock_s
        self._built_s: dict[int, float] = {}
        """When local indexes, by number, were first known here to have all rows."""
        self._directory = directory
        self._slots = slots
        self._standbys = standbys
        self._catalog = catalog
        self._counts = counts

    def handlers(self, strong: Mapping[str, Handler]) -> dict[str, BoundedHandler]:
        """Return the handlers of requests with a bound; ``strong`` are those without."""
        return {name: self._make_handler(name, strong[name]) for name in STALE_READS}

    def _make_handler(self, name: str, strong: Handler) -> BoundedHandler:
        def route(identity: Identity, body: bytes, limit_ms: bytes) -> Awaitable[bytes] | bytes:
            age_s_max = staleness_s(limit_ms)
            if not self._standbys or age_s_max < STALENESS_S_MIN:
                return self._strongly(strong, identity, body)
            if self._catalog.read_age_s() > age_s_max:
                return self._later(name, strong, identity, body, age_s_max)
            return self._answer(name, strong, identity, body, age_s_max)

        return route

    async def _later(
        self, name: str, strong: Handler, identity: Identity, body: bytes, age_s_max: float
    ) -> bytes:
        """Answer once the catalog is read to its present end; if that takes too long, strongly."""
        try:
            async with asyncio.timeout(CATALOG_S):
                await self._catalog.refresh_since(age_s_max)
        except (StoreError, TimeoutError):
            return await _whole(self._strongly(strong, identity, body))
        return await _whole(self._answer(name, strong, identity, body, age_s_max))

    def _strongly(
        self, strong: Handler, identity: Identity, body: bytes
    ) -> Awaitable[bytes] | bytes:
        self._counts.bounded_owner += 1
        return strong(identity, body)

    def copies(self, age_s_max: float) -> Copies:
        """Return the directory for one request, with copies up to that age."""
        standbys, built_age_s = self._standbys, self._find_built_age_s
        return Copies(self._directory, self._slots, standbys, age_s_max, built_age_s)

    def _find_built_age_s(self, number: int) -> float:
        """Return for how long a local index has been known as built; 0 at the first call."""
        now_s = self._clock_s()
        if number not in self._built_s:
            known = self._directory.catalog.tables_by_id
            self._built_s = {n: s for n, s in self._built_s.items() if n in known}
        return now_s - self._built_s.setdefault(number, now_s)

    def _answer(
        self, name: str, strong: Handler, identity: Identity, body: bytes, age_s_max: float
    ) -> Awaitable[bytes] | bytes:
        copies = self.copies(age_s_max)
        try:
            answer = _answer_from(copies, name, identity, body)
        except (StoreError, StoreFailed):
            # Not here, too old, not readable, or rejected: the owner decides.
            answer = None
        if answer is None:
            return self._strongly(strong, identity, body)
        self._counts.bounded_copy += bool(copies.used)
        self._counts.bounded_owner += not copies.used
        return answer


async def _whole(answer: Awaitable[bytes] | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else await answer


def _answer_from(
    copies: Copies, name: str, identity: Identity, body: bytes
) -> Awaitable[bytes] | bytes | None:
    """Return the answer, or None for a request in a transaction. Raises ``StoreError``."""
    rows = RowOperations(copies)
    if name == "BatchGetRow":
        _require_here(copies, identity, parse(pb.BatchGetRowRequest, body))
        return rows.batch_get_row(identity, body)
    if name == "GetRange":
        within = parse(pb.GetRangeRequest, body).transaction_id
        return None if within else rows.get_range(identity, body)
    within = parse(pb.GetRowRequest, body).transaction_id
    return None if within else rows.get_row(identity, body)


def _require_here(copies: Copies, identity: Identity, request: pb.BatchGetRowRequest) -> None:
    """Raise unless every row of a batch can be read here: otherwise none is counted as read."""
    for wanted in request.tables:
        table = copies.catalog.table(identity.instance, wanted.table_name)
        if table is None:
            raise Rejected("OTSObjectNotExist", "Another worker may know it.")
        copies.check_index_read(table)
        for buffer in wanted.primary_key:
            copies.owner(table, read_key(buffer, table, copies.limits)).require_readable()
