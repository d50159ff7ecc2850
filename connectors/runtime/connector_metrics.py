"""Metrics of the connectors of this process, as a file in the Prometheus text format.

The worker beside these connectors adds the file to its own page. Without a worker, a
collector of text files reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rowtide.connectors.runtime.connector_run import STATES, ConnectorRun
from rowtide.connectors.runtime.table_states import FAILED
from rowtide.stream.worker.metrics import COUNTER, GAUGE, Family, Metrics, Sample

__all__ = ["MetricsFile", "families"]


class MetricsFile:
    """A metrics file. Each call writes it again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: Collection[ConnectorRun] = ()
        self._metrics = Metrics(lambda: families(self._runs), of_process=False)

    def __call__(self, runs: Collection[ConnectorRun]) -> None:
        """Replace the file atomically with the numbers of ``runs``."""
        self._runs = runs
        draft = self._path.with_name(self._path.name + ".new")
        draft.write_bytes(self._metrics.text())
        draft.replace(self._path)


def families(runs: Collection[ConnectorRun]) -> list[Family]:
    """Return the metrics of the running connectors."""
    return [
        _family(
            COUNTER,
            "connector_changes",
            "Changes that a connector finished here.",
            runs,
            lambda run: run.progress.changes,
        ),
        _family(
            COUNTER,
            "connector_failures",
            "Failures, with retries of an unreachable sink.",
            runs,
            lambda run: run.progress.failures,
        ),
        _family(GAUGE, "connector_shards", "Shards read here.", runs, lambda run: len(run.shards)),
        _family(
            GAUGE,
            "connector_parked_rows",
            "Parked keys, as far as known here.",
            runs,
            lambda run: run.parked,
        ),
        _family(
            GAUGE,
            "connector_lag_records",
            "Records not handled, wherever the connector runs.",
            runs,
            lambda run: run.measured.records if run.measured else 0,
        ),
        _family(
            GAUGE,
            "connector_lag_seconds",
            "Age of the oldest change not handled.",
            runs,
            _seconds,
        ),
        _family(
            GAUGE,
            "connector_lag_bytes",
            "Bytes of the server's log that a source has not passed.",
            runs,
            lambda run: run.behind.bytes if run.behind else 0,
        ),
        _family(
            GAUGE,
            "connector_tables_failed",
            "Failed tables of a source.",
            runs,
            lambda run: sum(table.state == FAILED for table in run.tables),
        ),
        _states(runs),
    ]


def _family(
    kind: str,
    name: str,
    text: str,
    runs: Collection[ConnectorRun],
    value: Callable[[ConnectorRun], float],
) -> Family:
    samples: Sequence[Sample] = [Sample((r.declaration.name,), value(r)) for r in runs]
    return Family(kind, name, text, ("connector",), samples)


def _seconds(run: ConnectorRun) -> float:
    if run.behind is not None:
        return run.behind.seconds or 0
    return run.measured.seconds if run.measured else 0


def _states(runs: Collection[ConnectorRun]) -> Family:
    samples = [
        Sample((run.declaration.name, state), float(run.state == state))
        for run in runs
        for state in STATES
    ]
    text = "1 for the state that the connector is in here."
    return Family(GAUGE, "connector_state", text, ("connector", "state"), samples)
