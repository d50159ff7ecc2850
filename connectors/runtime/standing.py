"""The status of a connector, from its declaration, its processes' reports and its lag."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declarations import Declarations, DeclaredConnector, group_of
from rowtide.connectors.runtime.lag import Lag, measure_lag
from rowtide.connectors.runtime.parking import ParkedRows
from rowtide.connectors.runtime.status_board import Report, StatusBoard
from rowtide.connectors.runtime.table_states import FAILED
from rowtide.connectors.sources.source import Behind, TableState
from rowtide.core.values.errors import Rejected

__all__ = ["ConnectorStatus", "standings"]


@dataclass(slots=True)
class ConnectorStatus:
    """The status of one connector. ``reports`` are of the processes that run it now.

    ``lag`` is of a sink, read from its table. ``behind`` is of a source, reported by its
    process. ``state``: paused, not running (no process reports it), failed, sink away,
    starting, waiting (each process waits for another), snapshot, running, or unreadable.
    ``tables`` are a source's, as its process reports them. ``tables_failed`` of them
    failed while the others go on, and ``tables_omitted`` are not in the report.
    """

    name: str
    state: str
    kind: str = ""
    table: str = ""
    lag: Lag | None = None
    behind: Behind | None = None
    rate: float = 0.0
    parked: int = 0
    reports: list[Report] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    tables: list[TableState] = field(default_factory=list)
    tables_failed: int = 0
    tables_omitted: int = 0

    def document(self) -> dict[str, Any]:
        """Return the status as JSON values, for programs."""
        lag = self.lag
        progress: dict[str, Any] | None = None
        if lag is not None and lag.begun:
            progress = {
                "records": lag.records,
                "seconds": lag.seconds,
                "lost_shards": list(lag.lost),
            }
            if lag.unread:
                progress["snapshot"] = {"read": lag.read, "seconds_left": lag.left_s}
        elif self.behind is not None:
            progress = {"bytes": self.behind.bytes, "seconds": self.behind.seconds}
            if self.behind.copying:
                progress["snapshot"] = {"tables_left": self.behind.copying}
        return {
            "name": self.name,
            "state": self.state,
            "kind": self.kind,
            "table": self.table or None,
            "lag": progress,
            "changes_per_s": self.rate,
            "parked": self.parked,
            "tables": [asdict(table) for table in self.tables],
            "tables_failed": self.tables_failed,
            "tables_omitted": self.tables_omitted,
            "processes": [_without_tables(report) for report in self.reports],
            "troubles": self.troubles,
        }


def _without_tables(report: Report) -> dict[str, Any]:
    return {n: value for n, value in asdict(report).items() if not n.startswith("tables")}


async def standings(endpoint: Endpoint, names: Collection[str] = ()) -> dict[str, ConnectorStatus]:
    """Return the status of all connectors, or of those named. Raises ``StoreError``."""
    declared = await Declarations(endpoint).all()
    reports = await StatusBoard(endpoint).all()
    now_us = endpoint.answered_us
    found: dict[str, ConnectorStatus] = {}
    for name, one in declared.items():
        if names and name not in names:
            continue
        fresh = [report for report in reports.get(name, []) if report.is_fresh(now_us)]
        found[name] = await _standing(endpoint, one, fresh)
    return found


async def _standing(
    endpoint: Endpoint, declared: DeclaredConnector, reports: list[Report]
) -> ConnectorStatus:
    declaration = declared.declaration
    standing = ConnectorStatus(declared.name, "", reports=reports)
    standing.rate = sum(report.rate for report in reports)
    if declaration is None:
        standing.state = "unreadable"
        standing.troubles.append(declared.failure)
        return standing
    standing.kind, standing.table = declaration.kind, declaration.table
    entries = await ParkedRows(endpoint, declared.name).all()
    standing.parked = len({entry.key_bytes for entry in entries})
    if declaration.sink:
        try:
            leases = TableLeases(endpoint, group_of(declared.name))
            standing.lag = await measure_lag(ApiSource(endpoint, declaration.table), leases)
        except Rejected as error:
            standing.troubles.append(f"table {declaration.table}: {error.message}")
    for report in reports:
        if report.behind is not None:
            standing.behind = report.behind
        if report.tables:
            standing.tables = report.tables
            standing.tables_failed = report.tables_failed
            standing.tables_omitted = report.tables_omitted
    standing.troubles += [_trouble(table) for table in standing.tables if table.state == FAILED]
    if standing.lag is not None and standing.lag.lost:
        standing.troubles.append(
            f"changes were dropped before they were read, of shard {', '.join(standing.lag.lost)}: "
            f"`rowtide connector rewind {declared.name} rows` makes up for it"
        )
    standing.state = "paused" if declared.paused else _state(standing)
    return standing


def _trouble(table: TableState) -> str:
    remedy = f". Remedy: {table.remedy}" if table.remedy else ""
    return f"table {table.table} failed: {table.reason.rstrip('.')}{remedy}"


def _state(standing: ConnectorStatus) -> str:
    states = {report.state for report in standing.reports}
    if "running" in states:
        if any(report.waiting for report in standing.reports):
            return "sink away"
        lag, behind = standing.lag, standing.behind
        copying = (lag is not None and lag.unread) or (behind is not None and behind.copying)
        return "snapshot" if copying else "running"
    for state in ("failed", "starting", "waiting"):
        if state in states:
            return state
    return "not running"
