"""One connector in this process, begun again whenever it fails, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.lag import Lag
from rowtide.connectors.runtime.parking import ParkedRows
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.sources.source import Behind, TableState
from rowtide.core.values.errors import StoreError, first_failure

__all__ = ["STATES", "ConnectorRun"]

logger = logging.getLogger(__name__)

STATES = ("starting", "waiting", "running", "failed", "stopped")


class ConnectorRun(ABC):
    """What a sink's and a source's run share.

    ``state`` is one of ``STATES``: one that waits does so for another process that has the
    connector, one that failed for the end of a pause.
    """

    def __init__(self, declaration: Declaration, place: ProcessContext) -> None:
        self.declaration = declaration
        self.progress = Progress()
        self.state = "starting"
        self.back_off = BackOff()
        self.measured: Lag | None = None
        self.behind: Behind | None = None
        """As a source tells it, ``measured`` as the table of a sink does."""
        self._place = place
        self._parked = ParkedRows(place.endpoint, declaration.name)
        self._stopping = asyncio.Event()
        self._look = asyncio.Event()

    @property
    def shards(self) -> list[str]:
        """Return the shards that are read here now."""
        return []

    @property
    def parked(self) -> int:
        """Return how many keys are parked, as far as is known here."""
        return len(self._parked.keys)

    @property
    def tables(self) -> Sequence[TableState]:
        """Return the state of each table of a source that runs here."""
        return ()

    @abstractmethod
    async def measure(self) -> None:
        """Find out how far the connector is behind, where that can be told."""

    def look_at_parked(self) -> None:
        """Somebody wants parked rows to be tried again, or skipped."""
        self._look.set()

    def stop(self) -> None:
        """Let ``run`` end after what is in hand."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until stopped; whatever fails is tried again after a pause."""
        while not self._stopping.is_set():
            self.state = "starting"
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001 - of sinks and sources, whatever it is.
                self._failed(error)
                await self.back_off.pause(self._stopping)
        self.state = "stopped"

    @abstractmethod
    async def _once(self) -> None:
        """Run until stopped, or until something fails."""

    def _failed(self, failure: Exception) -> None:
        error = first_failure(failure) if isinstance(failure, ExceptionGroup) else failure
        self.state = "failed"
        self.progress.failed(f"{type(error).__name__}: {error}")
        known = isinstance(error, StoreError | SettingsRefused)
        trace = None if known else failure
        logger.warning("%s failed: %s", self.declaration.name, error, exc_info=trace)
