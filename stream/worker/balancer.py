"""Splits, merges and moves shards without an operator's request.

The catalog's owner checks all shards at a fixed interval. Every worker reports the log
ends of its shards and the bytes of their rows on disk. Two reports give a rate.
``core/cluster/balance.py`` decides what to change and ``stream/api/reshape.py`` changes
it. A failed check is skipped. The slot rebuilds rows that cannot be read, as after any
other failed read.
"""

from __future__ import annotations

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
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.ticks import sleep_to_tick
from rowtide.stream.shard.copy import row_ranges
from rowtide.stream.shard.row_store import StoreFailed

__all__ = ["Balancer"]

logger = logging.getLogger(__name__)

LOOK_S = 5.0
SAMPLE = 2000
"""Number of a log's last entries that are searched for the middle of the writes."""


class Seen(NamedTuple):
    """The end of a log, and the time when it was read."""

    end: int
    at_s: float


class Balancer:
    """Checks loads and changes shards while this worker owns the catalog.

    ``owners`` returns the address of each slot's worker.
    """

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
        """Check loads every ``LOOK_S`` seconds until cancelled."""
        while True:
            await sleep_to_tick(LOOK_S)
            if not self._owner.is_owner:
                self._seen.clear()
                continue
            try:
                await self._look()
            except StoreError as error:
                logger.debug("balancer: cannot read loads, retrying in %s s: %s", LOOK_S, error)
            except StoreFailed as error:
                logger.warning("balancer: cannot read loads, retrying in %s s: %s", LOOK_S, error)

    async def _look(self) -> None:
        loads = await self._loads()
        for wanted in self._balance.look(loads, self._owners(), time.monotonic()):
            table = self._owner.catalog.tables_by_id.get(wanted.table_id)
            if table is None:
                continue
            logger.info("balancer: starting %s of %s", wanted.kind, ", ".join(wanted.shards))
            try:
                await self._change(table, wanted)
            except (StoreError, StoreFailed) as error:
                level = logging.INFO if isinstance(error, StoreError) else logging.WARNING
                logger.log(
                    level, "balancer: %s of %s failed: %s", wanted.kind, wanted.shards[0], error
                )
                if wanted.kind == SPLIT:
                    self._balance.record_rejection(wanted, time.monotonic())

    async def _change(self, table: Table, wanted: WantedChange) -> None:
        if wanted.kind == MOVE:
            await self._reshapes.move(table, wanted.shards[0], wanted.slot)
        elif wanted.kind == MERGE:
            await self._reshapes.merge(table, *wanted.shards)
        else:
            shard = open_shard(table, wanted.shards[0])
            middle = self._find_written_middle if wanted.hot else self._reshapes.middle
            await self._reshapes.split(table, shard.shard_id, await middle(table, shard))

    async def _loads(self) -> list[ShardLoad]:
        """Return the loads of all shards that may be changed now."""
        body = LoadsRequest().encode()
        reports = [self.loads_request(NOBODY, body)]
        reports += await self._placement.others(LoadsRequest.operation, body)
        answers = [ObjectAnswer.decode(report).content for report in reports]
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
        """Return (end of the log, bytes on disk) of every shard that is open here."""
        loads: dict[str, tuple[int, int]] = {}
        for slot in self._directory.slots():
            files = slot.rows.files() if slot.rows is not None else []
            for name, owner in slot.shards.items():
                table = owner.shard.table
                shard = table.shard(name)
                ranges = [] if shard is None else row_ranges(table, shard)
                loads[name] = owner.end, sum(bytes_between(files, *ends) for ends in ranges)
        return ObjectAnswer(loads).encode()

    # Where to split a shard that receives many writes.

    async def _find_written_middle(self, table: Table, shard: ShardRange) -> bytes:
        request = WrittenMiddleRequest(shard.slot, shard.shard_id)
        body = request.encode()
        try:
            answer = self.find_written_middle_request(NOBODY, body)
        except Elsewhere:
            answer = await self._forward(shard.slot, request.operation, NOBODY, body)
        middle = KeyAnswer.decode(answer).key
        if not middle:
            raise invalid(f"All recent writes of shard {shard.shard_id} have one partition key.")
        return middle

    @answers(WrittenMiddleRequest.operation)
    def find_written_middle_request(self, _identity: Identity, body: bytes) -> bytes:
        """Return the encoded partition key in the middle of a shard's last writes.

        Returns an empty key if there is none.
        """
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
