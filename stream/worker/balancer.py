"""Has shards split, merged and moved by themselves: the catalog's owner looks at all of them.

Every worker tells how far the logs of its shards are and how much their rows take on disk; two
looks make a rate. What follows from that is ``core/cluster/balance.py``'s; how it is done is
``stream/api/reshape.py``'s. A look that fails is left out. Rows that
can't be read are their slot's to rebuild, as after any other read of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rowtide.core.cluster.balance import Balance, BalanceSettings, ShardLoad, WantedChange
from rowtide.core.cluster.split_points import bytes_between
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import (
    KeyAnswer,
    LoadsRequest,
    ObjectAnswer,
    WrittenMiddleRequest,
)
from rowtide.core.shard.reshape import MERGE, MOVE, SPLIT
from rowtide.core.values import key
from rowtide.core.values.errors import Elsewhere, StoreError, invalid
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.reshape import ReshapeOperations, open_shard
from rowtide.stream.api.split_point import Forward
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop import NOBODY
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.copy import row_ranges
from rowtide.stream.shard.row_store import StoreFailed

__all__ = ["Balancer"]

logger = logging.getLogger(__name__)

LOOK_S = 5.0
SAMPLE = 2000
"""Of the last entries of a log, in which the middle of what is written is looked for."""


class Seen(NamedTuple):
    """Where a log ended, and when that was looked at."""

    end: int
    at_s: float


class Balancer:
    """Looks and acts while this worker owns the catalog. ``owners`` tells each slot's worker."""

    def __init__(
        self,
        directory: Directory,
        catalog: CatalogOwner,
        placement: Placement,
        reshapes: ReshapeOperations,
        forward: Forward,
        owners: Callable[[], Mapping[int, str]],
        settings: BalanceSettings,
    ) -> None:
        self._directory = directory
        self._owner = catalog
        self._placement = placement
        self._reshapes = reshapes
        self._forward = forward
        self._owners = owners
        self._balance = Balance(settings)
        self._seen: dict[str, Seen] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._owner.owning:
                self._seen.clear()
                continue
            try:
                await self._look()
            except StoreError as error:
                logger.debug("loads are looked at later: %s", error)
            except StoreFailed as error:
                logger.warning("loads are looked at later: %s", error)

    async def _look(self) -> None:
        loads = await self._loads()
        for wanted in self._balance.look(loads, self._owners(), time.monotonic()):
            table = self._owner.catalog.tables_by_id.get(wanted.table_id)
            if table is None:
                continue
            logger.info("%s of %s by itself", wanted.kind, ", ".join(wanted.shards))
            try:
                await self._change(table, wanted)
            except (StoreError, StoreFailed) as error:
                level = logging.INFO if isinstance(error, StoreError) else logging.WARNING
                logger.log(level, "%s of %s is not done: %s", wanted.kind, wanted.shards[0], error)
                if wanted.kind == SPLIT:
                    self._balance.refused(wanted, time.monotonic())

    async def _change(self, table: Table, wanted: WantedChange) -> None:
        if wanted.kind == MOVE:
            await self._reshapes.move(table, wanted.shards[0], wanted.slot)
        elif wanted.kind == MERGE:
            await self._reshapes.merge(table, *wanted.shards)
        else:
            shard = open_shard(table, wanted.shards[0])
            middle = self._written_middle if wanted.hot else self._reshapes.middle
            await self._reshapes.split(table, shard.shard_id, await middle(table, shard))

    async def _loads(self) -> list[ShardLoad]:
        """Return the loads of all shards that may be changed now."""
        body = LoadsRequest().encode()
        told = [self.loads_request(NOBODY, body)]
        told += await self._placement.others(LoadsRequest.operation, body)
        answers = [ObjectAnswer.decode(part).content for part in told]
        ends = {name: found for answer in answers for name, found in answer.items()}
        catalog, now_s = self._owner.catalog, time.monotonic()
        busy = {change.table_id for change in catalog.reshapes.values()}
        seen, self._seen = self._seen, {}
        loads: list[ShardLoad] = []
        for name, (end, size) in ends.items():
            self._seen[name] = Seen(end, now_s)
            known = catalog.shards.get(name)
            if known is None or known[1].sealed_us or known[0].table_id in busy or known[0].main:
                continue
            before = seen.get(name)
            rate = None if before is None else (end - before.end) / (now_s - before.at_s)
            loads.append(ShardLoad(known[0].table_id, known[1], size, rate))
        return loads

    @answers(LoadsRequest.operation)
    def loads_request(self, _identity: Identity, _body: bytes) -> bytes:
        """Return (log's end, bytes on disk) of every shard that is open here."""
        told: dict[str, tuple[int, int]] = {}
        for slot in self._directory.slots():
            files = slot.rows.files() if slot.rows is not None else []
            for name, owner in slot.shards.items():
                table = owner.shard.table
                shard = table.shard(name)
                ranges = [] if shard is None else row_ranges(table, shard)
                told[name] = owner.end, sum(bytes_between(files, *ends) for ends in ranges)
        return ObjectAnswer(told).encode()

    # Where to split what is written much.

    async def _written_middle(self, table: Table, shard: ShardRange) -> bytes:
        request = WrittenMiddleRequest(shard.slot, shard.shard_id)
        body = request.encode()
        try:
            told = self.written_middle_request(NOBODY, body)
        except Elsewhere:
            told = await self._forward(shard.slot, request.operation, NOBODY, body)
        middle = KeyAnswer.decode(told).key
        if not middle:
            raise invalid(f"Shard {shard.shard_id} is written at one partition key.")
        return middle

    @answers(WrittenMiddleRequest.operation)
    def written_middle_request(self, _identity: Identity, body: bytes) -> bytes:
        """Return the encoded partition key in the middle of a shard's last writes; b"": none."""
        request = WrittenMiddleRequest.decode(body)
        owner = self._directory.slot(request.slot).owner(request.shard)
        entries = owner.readers.last_applied()[-SAMPLE:]
        keys = Counter(key.encode(key.decode(e.key)[:1]) for e in entries if e.key)
        ordered = sorted(keys)
        half, before = keys.total() / 2, 0
        for at in ordered:
            if before >= half and at != ordered[0]:
                return KeyAnswer(at).encode()
            before += keys[at]
        return KeyAnswer(ordered[-1] if len(ordered) > 1 else b"").encode()
