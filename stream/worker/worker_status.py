"""What an operator reads first: the status of this worker, and that of all workers.

The status of a worker that does not answer is the reason. The answers of the others
remain valid.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from rowtide.core import native
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import ObjectAnswer, StatusRequest
from rowtide.core.release import VERSION
from rowtide.stream.cluster.peers import Peers, silent
from rowtide.stream.http.handlers import answers
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.worker.worker_metrics import WorkerParts

__all__ = ["ClusterStatus", "WorkerStatus"]


class WorkerStatus(NamedTuple):
    """The status of one worker. ``log`` is the place of the logs; ``started_s`` is a Unix time."""

    parts: WorkerParts
    log: str
    durability: str
    address: str
    started_s: float

    def report(self) -> dict[str, Any]:
        """Return the status as operators see it."""
        parts, catalog = self.parts, self.parts.catalog
        reasons = parts.health.reasons()
        return {
            "pid": os.getpid(),
            "version": VERSION,
            "kernels": native.kind(),
            "address": self.address,
            "uptime_s": round(time.time() - self.started_s, 1),
            "ready": not reasons,
            "drained": parts.health.drained(),
            "reasons": reasons,
            "log": self.log,
            "durability": self.durability,
            "instances": len(catalog.instances),
            "tables": sum(not table.main for table in catalog.tables.values()),
            "connections": parts.edge.connections,
            "free_bytes": parts.health.free_bytes,
            "free_bytes_min": parts.free_bytes_min,
            "slots": [self._slot(slot) for _, slot in sorted(parts.slots.items())],
            "standbys": [self._standby(copy) for _, copy in sorted(parts.standbys.items())],
            "indexes": [
                {"instance": i, "table": t, "index": x, "behind": behind, "behind_s": behind_s}
                for (i, t, x), behind, behind_s in parts.indexes.lags()
            ],
        }

    @answers(StatusRequest.operation)
    def request(self, _identity: Identity, _body: bytes) -> bytes:
        """Answer another worker."""
        return ObjectAnswer(self.report()).encode()

    def _standby(self, standby: Standby) -> dict[str, Any]:
        return {
            "slot": standby.number,
            "warm": standby.is_warm,
            "shards": len(standby.shards),
            "lag_records": standby.lag,
            "lag_s": standby.age_s(),
            "faults": {name: s.broken for name, s in standby.shards.items() if s.broken},
        }

    def _slot(self, slot: Slot) -> dict[str, Any]:
        flushed_s, failure = slot.flushed_s, slot.openings.failure
        return {
            "slot": slot.number,
            "open": slot.opened.is_set(),
            "failure": None if failure is None else str(failure),
            "lease": slot.is_readable(),
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
                    "unflushed": max(0, owner.end - 1 - owner.rows.find_flushed(shard_id)),
                    "dirty_rows": len(owner.ledger.keys),
                }
                for shard_id, owner in sorted(slot.shards.items())
            ],
            "opening": slot.opening,
            "closed": slot.all_closed,
            "reclaimer": slot.reclaimer.status(),
        }


class ClusterStatus:
    """The status of all workers."""

    def __init__(self, here: WorkerStatus, peers: Peers) -> None:
        self._here = here
        self._peers = peers

    async def report(self) -> dict[str, Any]:
        """Return every worker's status, this one's first."""
        here = self._here.report()  # Before the others: a silent worker takes seconds.
        request = StatusRequest()
        answers = await self._peers.ask(request.operation, request.encode())
        bodies = [body for body in answers.values() if isinstance(body, bytes)]
        found = [ObjectAnswer.decode(body).content for body in bodies]
        return {"workers": [here, *found, *silent(answers)]}
