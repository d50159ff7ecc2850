"""What an operator asks first: how this worker is doing, and how all of them are.

A worker that does not answer is told with the reason; the others' answers stand all the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from rowtide.core.authentication import Identity
from rowtide.core.errors import StoreError
from rowtide.stream.hop import NOBODY, HopClient
from rowtide.stream.slot import Slot
from rowtide.stream.worker_metrics import WorkerParts

__all__ = ["WORKER_STATUS", "ClusterStatus", "WorkerStatus"]

WORKER_STATUS = "RowtideWorkerStatus"

ANSWER_S = 3.0
"""A worker that has not answered by then is told as silent."""


class WorkerStatus(NamedTuple):
    """The status of one worker. ``started_s`` is a Unix time."""

    parts: WorkerParts
    kafka: str
    durability: str
    address: str
    started_s: float

    def told(self) -> dict[str, Any]:
        """Return it as operators see it."""
        parts, catalog = self.parts, self.parts.catalog
        reasons = parts.health.reasons()
        return {
            "pid": os.getpid(),
            "version": version("rowtide"),
            "address": self.address,
            "uptime_s": round(time.time() - self.started_s, 1),
            "ready": not reasons,
            "reasons": reasons,
            "kafka": self.kafka,
            "durability": self.durability,
            "instances": len(catalog.instances),
            "tables": sum(not table.main for table in catalog.tables.values()),
            "connections": parts.edge.connections,
            "free_bytes": parts.health.free_bytes,
            "free_bytes_min": parts.free_bytes_min,
            "slots": [self._slot(slot) for _, slot in sorted(parts.slots.items())],
            "indexes": [
                {"instance": i, "table": t, "index": x, "behind": behind, "behind_s": behind_s}
                for (i, t, x), behind, behind_s in parts.indexes.lags()
            ],
        }

    def request(self, _identity: Identity, _body: bytes) -> bytes:
        """Answer another worker."""
        return json.dumps(self.told()).encode()

    def _slot(self, slot: Slot) -> dict[str, Any]:
        flushed_s = slot.flushed_s
        return {
            "slot": slot.number,
            "open": slot.opened.is_set(),
            "lease": slot.readable(),
            "lease_age_s": self.parts.lease_age_s(slot.number),
            "flush_age_s": None if flushed_s is None else time.monotonic() - flushed_s,
            "claim": slot.claim,
            "shards": [
                {
                    "shard": shard_id,
                    "table": owner.shard.table.name,
                    "instance": owner.shard.table.instance,
                    "start": slot.starts.get(shard_id, 0),
                    "end": owner.end,
                    "waiting": owner.pending,
                    "unflushed": max(0, owner.end - 1 - owner.rows.flushed(shard_id)),
                    "dirty_rows": len(owner.dirty),
                }
                for shard_id, owner in sorted(slot.shards.items())
            ],
            "closed": slot.closed,
            "reclaimer": slot.reclaimer.status(),
        }


class ClusterStatus:
    """The status of all workers. ``owners`` tells each slot's worker by address."""

    def __init__(
        self, here: WorkerStatus, hop: HopClient, owners: Callable[[], Mapping[int, str]]
    ) -> None:
        self._here = here
        self._hop = hop
        self._owners = owners

    async def told(self) -> dict[str, Any]:
        """Return every worker's status, this one's first."""
        others = sorted(set(self._owners().values()) - {self._here.address})
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(self._ask(at), name=f"status[{at}]") for at in others]
        return {"workers": [self._here.told(), *(answer.result() for answer in asked)]}

    async def _ask(self, address: str) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_S):
                told = await self._hop.call(address, NOBODY, WORKER_STATUS, b"{}")
        except (StoreError, TimeoutError) as error:
            return {"address": address, "error": str(error) or "no answer"}
        found: dict[str, Any] = json.loads(told)
        return found
