"""The first page: what is wrong with the cluster, since when, and what to do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from rowtide.console.pages.faults import ClusterFault, find_faults
from rowtide.console.web.render import render
from rowtide.console.web.routes import CALLS, SETTINGS, WebRoute
from rowtide.console.web.sessions import session_of
from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable

__all__ = ["HEALTH", "HEALTH_ROUTES", "HealthWatch"]

logger = logging.getLogger(__name__)

WATCH_S = 2.0
"""Between two looks at the cluster: "since when" is as exact as this."""


class HealthWatch:
    """Remembers since when a fault is there. It asks with the console's own key."""

    def __init__(self, calls: WorkerCalls, key: KeyPair, instance: str) -> None:
        self._calls = calls
        self._key = key
        self._instance = instance
        self._since_s: dict[str, float] = {}
        self.workers: Sequence[dict[str, Any]] = ()
        """The workers' status as they last answered."""
        self.faults: list[ClusterFault] = []

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(WATCH_S)

    async def look(self) -> None:
        """Ask once, and note what is wrong."""
        try:
            found = await self._calls.call(self._key, self._instance, "RowtideClusterStatus")
        except (Unavailable, OutcomeUnknown) as error:
            self.note([ClusterFault("no_answer", self._calls.endpoint, True, error.message)])
        except StoreError as error:
            self.note([ClusterFault("own_key", self._key.access_key_id, False, error.message)])
        else:
            self.workers = found["workers"]
            self.note(find_faults(self.workers))

    def note(self, faults: list[ClusterFault]) -> None:
        """Remember when each fault was first seen, and forget those that are over."""
        now_s = time.time()
        for fault in faults:
            if fault.name not in self._since_s:
                logger.warning("cluster: %s %s %s", fault.kind, fault.subject, fault.reason)
        self._since_s = {fault.name: self._since_s.get(fault.name, now_s) for fault in faults}
        self.faults = faults

    def since_s(self, fault: ClusterFault) -> float | None:
        """Return when a fault was first seen, in Unix seconds; None if it is new."""
        return self._since_s.get(fault.name)


HEALTH = web.AppKey("HEALTH", HealthWatch)


async def show_health(request: web.Request) -> web.Response:
    """Return the state of the cluster.

    It is that of the worker's answer to the visitor's own key. If the worker does not answer, the
    page shows what the console saw last.
    """
    session, watch = session_of(request), request.app[HEALTH]
    faults, workers = watch.faults, watch.workers
    try:
        found = await request.app[CALLS].call(
            session.credentials, session.instance, "RowtideClusterStatus"
        )
        workers = found["workers"]
        faults = find_faults(workers)
    except (Unavailable, OutcomeUnknown) as error:
        faults = [ClusterFault("no_answer", request.app[SETTINGS].endpoint, True, error.message)]
    except Rejected as error:
        if error.code != "OTSNoPermissionAccess":
            raise
        # Details of the cluster are for administrators: others learn how many problems there are.
        workers = ()
    is_shown = session.is_admin
    return render(
        request,
        "health.html",
        is_healthy=not faults,
        is_detailed=is_shown,
        problems=len(faults),
        faults=[_shown(fault, watch) for fault in faults] if is_shown else [],
        workers=[_worker(worker) for worker in workers] if is_shown else [],
        slots=_slots(workers) if is_shown else [],
        now_s=time.time(),
    )


def _shown(fault: ClusterFault, watch: HealthWatch) -> dict[str, Any]:
    return {**fault._asdict(), "since_s": watch.since_s(fault)}


def _worker(worker: dict[str, Any]) -> dict[str, Any]:
    if "error" in worker:
        return {"address": worker["address"], "state": "silent", "reason": worker["error"]}
    state = "drained" if worker.get("drained") else "ready" if worker["ready"] else "not_ready"
    kept = ("address", "version", "uptime_s", "connections", "free_bytes", "free_bytes_min", "log")
    return {
        "state": state,
        "slots": len(worker["slots"]),
        "shards": sum(len(slot["shards"]) for slot in worker["slots"]),
        **{name: worker[name] for name in kept},
    }


def _slots(workers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [
        {
            "slot": slot["slot"],
            "worker": worker["address"],
            "state": "opening" if not slot["open"] else "open" if slot["lease"] else "no_lease",
            "lease_age_s": slot["lease_age_s"],
            "flush_age_s": slot["flush_age_s"],
            "shards": len(slot["shards"]),
            "unflushed": sum(shard["unflushed"] for shard in slot["shards"]),
        }
        for worker in workers
        if "error" not in worker
        for slot in worker["slots"]
    ]
    return sorted(found, key=lambda slot: int(slot["slot"]))


HEALTH_ROUTES = (WebRoute("GET", "/", show_health),)
