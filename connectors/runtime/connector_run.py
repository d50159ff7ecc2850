"""One connector in this process. It restarts after each failure until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.lag import Lag
from rowtide.connectors.runtime.parking import ParkedRows
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.sources.source import Behind, TableState
from rowtide.core.values.errors import StoreError, first_failure

__all__ = ["STATES", "ConnectorRun", "RunDeclaration"]

logger = logging.getLogger(__name__)

STATES = ("starting", "waiting", "running", "failed", "stopped")


class RunDeclaration(Protocol):
    """What is run under a name. A run with another ``text`` is stopped and started again."""

    @property
    def name(self) -> str:
        """The name of reports, log lines and metrics."""
        ...

    @property
    def text(self) -> str:
        """Everything on which the run depends."""
        ...

    @property
    def described(self) -> str:
        """What it does, in a few words."""
        ...


class ConnectorRun(ABC):
    """What the runs of sinks, of sources and of dashboards share.

    ``state`` is one of ``STATES``. A run is ``waiting`` while another process has the
    connector, and ``failed`` during the pause before a restart.
    """

    def __init__(self, declaration: RunDeclaration, place: ProcessContext) -> None:
        self.declaration = declaration
        self.progress = Progress()
        self.state = "starting"
        self.back_off = BackOff()
        self.measured: Lag | None = None
        self.behind: Behind | None = None
        """Lag of a source, as the source reports it. ``measured`` is the lag of a sink."""
        self._place = place
        self._parked = ParkedRows(place.endpoint, declaration.name)
        self._stopping = asyncio.Event()
        self._look = asyncio.Event()

    @property
    def shards(self) -> list[str]:
        """The shards that this process reads now."""
        return []

    @property
    def parked(self) -> int:
        """How many keys are parked, as far as this process knows."""
        return len(self._parked.keys)

    @property
    def tables(self) -> Sequence[TableState]:
        """The state of each table of a source that runs here."""
        return ()

    @abstractmethod
    async def measure(self) -> None:
        """Measure how far the connector is behind, if that is possible."""

    def request_retries(self) -> None:
        """Wake the run: an operator asked to retry or skip parked rows."""
        self._look.set()

    def stop(self) -> None:
        """Make ``run`` end after the work in progress."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until stopped. After any failure retry with a pause."""
        while not self._stopping.is_set():
            self.state = "starting"
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001 - a sink or source may raise anything.
                self._note_failure(error)
                await self.back_off.pause(self._stopping)
        self.state = "stopped"

    @abstractmethod
    async def _once(self) -> None:
        """Run until stopped or until something fails."""

    def _note_failure(self, failure: Exception) -> None:
        error = first_failure(failure) if isinstance(failure, ExceptionGroup) else failure
        self.state = "failed"
        self.progress.note_failure(f"{type(error).__name__}: {error}")
        known = isinstance(error, StoreError | SettingsRefused)
        trace = None if known else failure
        logger.warning("%s failed: %s", self.declaration.name, error, exc_info=trace)
