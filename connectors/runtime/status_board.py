"""Reports of processes on the connectors that they run: the table
``rowtide_connector_status``.

There is a row per connector and process, written every two seconds. An old row belongs to
a process that ended without removing it. It expires after a day.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.connector_run import ConnectorRun
from rowtide.connectors.runtime.kept_rows import Columns, KeptRows
from rowtide.connectors.runtime.table_states import fit_states
from rowtide.connectors.sources.source import Behind, TableState
from rowtide.core.values.errors import Unavailable

__all__ = ["FRESH_S", "STATUS_TABLE", "Report", "StatusBoard", "report_of"]

STATUS_TABLE = "rowtide_connector_status"

FRESH_S = 10.0
"""An older report is of a process that ended or can't reach the server."""

DAY_S = 86_400

STOPPED_S_MAX = 30.0
LOOK_S = 0.2


@dataclass(slots=True)
class Report:
    """One process's report on one connector. Times are the server's Unix microseconds."""

    process: str
    told_us: int
    state: str
    shards: int
    changes: int
    rate: float
    failures: int
    last_error: str
    last_error_us: int
    waiting: bool
    """True if a shard waits for an unavailable sink."""
    snapshot_rows: int
    behind: Behind | None = None
    """Lag of a source."""
    tables: list[TableState] = field(default_factory=list)
    """Tables of a source, sorted by name. ``tables_omitted`` more do not fit into the report."""
    tables_failed: int = 0
    tables_omitted: int = 0

    def is_fresh(self, now_us: int) -> bool:
        """True if the process still runs the connector, as far as its report shows."""
        return now_us - self.told_us < FRESH_S * 1_000_000


def report_of(run: ConnectorRun, process: str, now_us: int) -> Report:
    """Return a process's report on a run."""
    progress, states = run.progress, fit_states(run.tables)
    return Report(
        process,
        now_us,
        run.state,
        len(run.shards),
        progress.changes,
        round(progress.rate, 1),
        progress.failures,
        progress.last_error[:1000],
        progress.last_error_us,
        bool(progress.waiting),
        progress.snapshot_rows,
        run.behind,
        list(states.tables),
        states.failed,
        states.omitted,
    )


class StatusBoard:
    """The table of reports."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        key = (("connector", str), ("process", str))
        self._rows = KeptRows(endpoint, STATUS_TABLE, key, ttl_s=DAY_S)

    async def report(self, connector: str, report: Report) -> None:
        """Write a report over the one before."""
        columns: Columns = {"report": json.dumps(asdict(report))}
        await self._rows.put((connector, report.process), columns)

    async def withdraw(self, connector: str, process: str) -> None:
        """Remove the report of a process that no longer runs the connector."""
        await self._rows.delete((connector, process))

    async def wait_until_stopped(self, connectors: Collection[str], what: str) -> None:
        """Return once no process runs one of the connectors.

        Raises ``Unavailable`` with ``what`` if a process takes too long.
        """
        until_s = time.monotonic() + STOPPED_S_MAX
        while True:
            reports = await self.all()
            now_us = self._endpoint.answered_us
            running = [
                report.process
                for connector in connectors
                for report in reports.get(connector, [])
                if report.is_fresh(now_us)
            ]
            if not running:
                return
            if time.monotonic() > until_s:
                raise Unavailable(f"{what} still runs on {', '.join(running)}", "OTSServerBusy")
            await asyncio.sleep(LOOK_S)

    async def withdraw_all(self, connector: str) -> None:
        """Remove every report on a connector."""
        for report in (await self.all()).get(connector, []):
            await self.withdraw(connector, report.process)

    async def all(self) -> dict[str, list[Report]]:
        """Return the reports by connector, including old ones."""
        found: dict[str, list[Report]] = {}
        for key, columns in await self._rows.scan():
            try:
                report = _parse_report(str(columns["report"]))
            except (KeyError, TypeError, ValueError):
                continue  # Another version wrote it in an unknown form.
            found.setdefault(str(key[0]), []).append(report)
        return found


def _parse_report(text: str) -> Report:
    """Return the report in a text of any version. Unknown fields are dropped."""
    content = json.loads(text)
    known = {name: content[name] for name in _FIELDS if name in content}
    behind = known.pop("behind", None)
    tables = [TableState(**state) for state in known.pop("tables", [])]
    return Report(**known, behind=Behind(**behind) if behind is not None else None, tables=tables)


_FIELDS = [field.name for field in fields(Report)]
