"""The run of something that reads a table's changes in this process: a sink or a dashboard."""

from __future__ import annotations

import asyncio

from rowtide.client.changes.worker import ChangeWorker
from rowtide.connectors.runtime.connector_run import ConnectorRun, RunDeclaration
from rowtide.connectors.runtime.place import ProcessContext

__all__ = ["ReaderRun"]


class ReaderRun(ConnectorRun):
    """A run whose ``_worker`` reads the changes while it is open."""

    def __init__(self, declaration: RunDeclaration, place: ProcessContext) -> None:
        super().__init__(declaration, place)
        self._worker: ChangeWorker | None = None
        self._failures: list[Exception] = []
        self._ending = asyncio.Event()
        """Set by a stop and by a final failure: no retry of a write goes on then."""

    @property
    def shards(self) -> list[str]:
        """The shards that this process reads now."""
        return self._worker.shards if self._worker is not None else []

    def stop(self) -> None:
        """Make ``run`` end after the batches in progress. Other processes take their shards."""
        super().stop()
        self._end_worker()

    def _fail(self, error: Exception) -> None:
        """Stop the worker. It releases its leases at once, so another process can try."""
        self._failures.append(error)
        self._end_worker()

    def _end_worker(self) -> None:
        self._ending.set()
        if self._worker is not None:
            self._worker.stop()
