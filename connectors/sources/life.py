"""A source of a server and its lives. A life starts with new connections and ends with a
failure.

Requests from outside go to the current life: a stop, a measurement of the lag, a row to
copy again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.sources.errands import Errands, follows_nothing
from rowtide.connectors.sources.source import Behind
from rowtide.core.values.variant import Scalar

__all__ = ["Life", "ServerSource"]

Server = TypeVar("Server")
Asked = TypeVar("Asked", contravariant=True)


class Life(Protocol[Asked]):
    """One run from a checkpoint over open connections, until ``stop`` or a failure."""

    errands: Errands

    def stop(self) -> None:
        """Make it end soon."""
        ...

    async def behind(self, server: Asked) -> Behind:
        """Return how far rowtide is behind. ``server`` is a session for this call only."""
        ...


class ServerSource(ABC, Generic[Server]):
    """What sources of a server share. ``Server`` is a session."""

    def __init__(self) -> None:
        self._life: Life[Server] | None = None
        self._gauge: Server | None = None
        self.stopping = False

    @abstractmethod
    def map_errors(self) -> AbstractContextManager[None]:
        """Map errors of the server to errors of a source."""

    def begin_life(self, life: Life[Server], gauge: Server) -> None:
        """Send requests to a life from now on. ``gauge`` is the session for its lag."""
        self._life, self._gauge = life, gauge
        if self.stopping:
            life.stop()

    def end_life(self) -> None:
        """Send requests to no life. Fail those that still wait."""
        if self._life is not None:
            self._life.errands.end()
        self._life = None

    def stop(self) -> None:
        """Make ``run`` end at the next position from which nothing is repeated."""
        self.stopping = True
        if self._life is not None:
            self._life.stop()

    async def behind(self) -> Behind | None:
        """See ``Measurable``."""
        life, gauge = self._life, self._gauge
        if life is None or gauge is None:
            return None
        with self.map_errors():
            return await life.behind(gauge)

    async def copy_again(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """See ``CopiesRows``."""
        if self._life is None:
            raise follows_nothing()
        await self._life.errands.ask(table, key, write)
