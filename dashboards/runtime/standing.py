"""The status of dashboards, from their declarations, their processes' reports and their lag."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.lag import Lag, measure_lag
from rowtide.connectors.runtime.status_board import Report, StatusBoard
from rowtide.core.values.errors import Rejected, StoreError
from rowtide.dashboards.runtime.stored_dashboards import (
    DashboardBuild,
    StoredDashboard,
    StoredDashboards,
    run_name,
)

__all__ = ["DashboardStatus", "note_full_disks", "read_standings"]


@dataclass(slots=True)
class DashboardStatus:
    """The status of one dashboard. ``reports`` are of the processes that run it now.

    ``silent`` is the number of processes that ran it and have not reported for 10 s.
    ``state``: unreadable, paused, not running (no process reports it), failed, starting, building
    (its numbers are not complete yet), ready, or waiting. Then a worker rejects writes of its
    state, mostly because the disk is full: the numbers stay as they are until there is space.
    """

    name: str
    state: str = ""
    lag: Lag | None = None
    rate: float = 0.0
    reports: list[Report] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    silent: int = 0

    def document(self) -> dict[str, Any]:
        """Return the status as JSON values, for programs."""
        lag = self.lag
        progress = None
        if lag is not None and lag.begun:
            progress = {
                "records": lag.records,
                "seconds": lag.seconds,
                "read": lag.read,
                "lost_shards": list(lag.lost),
            }
        return {
            "name": self.name,
            "state": self.state,
            "lag": progress,
            "changes_per_s": self.rate,
            "processes": [asdict(report) for report in self.reports],
            "troubles": self.troubles,
        }


async def read_standings(
    endpoint: Endpoint, names: Collection[str] = ()
) -> dict[str, DashboardStatus]:
    """Return the status of all dashboards, or of those named. Raises ``StoreError``."""
    stored = await StoredDashboards(endpoint).all()
    reports = await StatusBoard(endpoint).all()
    now_us = endpoint.answered_us
    found: dict[str, DashboardStatus] = {}
    for name, one in stored.items():
        if names and name not in names:
            continue
        of_run = reports.get(run_name(name), [])
        fresh = [report for report in of_run if report.is_fresh(now_us)]
        found[name] = await _standing(endpoint, one, fresh)
        found[name].silent = len(of_run) - len(fresh)
    return found


async def note_full_disks(endpoint: Endpoint, standings: Iterable[DashboardStatus]) -> None:
    """Note in each status which workers reject writes, because their disks are full.

    A report is a write, too. So a process that does not report may be one that waits.
    """
    full = await _find_full_disks(endpoint)
    for standing in standings:
        standing.troubles += full
        if full and standing.silent and standing.state == "not running":
            standing.state = "waiting"


async def _find_full_disks(endpoint: Endpoint) -> list[str]:
    """Return a sentence for each worker that rejects writes for want of space.

    None is returned to a key that may not see the workers.
    """
    try:
        workers = json.loads(await endpoint.ask("RowtideClusterStatus", b"{}"))["workers"]
    except StoreError:
        return []
    return [
        f"worker {worker['address']}: the disk has {worker['free_bytes']:,} bytes free. Writes are "
        f"rejected below {worker['free_bytes_min']:,}. Numbers wait until there is space."
        for worker in workers
        if worker.get("free_bytes", 0) < worker.get("free_bytes_min", 0)
    ]


async def _standing(
    endpoint: Endpoint, stored: StoredDashboard, reports: list[Report]
) -> DashboardStatus:
    standing = DashboardStatus(stored.name, reports=reports)
    standing.rate = sum(report.rate for report in reports)
    if stored.build is None:
        standing.state = "unreadable"
        standing.troubles.append(stored.failure)
        return standing
    try:
        standing.lag = await _lag(endpoint, stored.build)
    except Rejected as error:
        table = stored.build.dashboard.table.name
        standing.troubles.append(f"table {table}: {error.message}")
    standing.troubles += [report.last_error for report in reports if report.last_error]
    standing.state = "paused" if stored.paused else _state(stored, reports)
    return standing


async def _lag(endpoint: Endpoint, build: DashboardBuild) -> Lag:
    source = ApiSource(endpoint, build.dashboard.table.name)
    return await measure_lag(source, TableLeases(endpoint, build.consumer))


def _state(stored: StoredDashboard, reports: list[Report]) -> str:
    states = {report.state for report in reports}
    if "running" in states:
        if any(report.waiting for report in reports):
            return "waiting"
        return "ready" if stored.is_ready else "building"
    for state in ("failed", "starting"):
        if state in states:
            return state
    return "not running"
