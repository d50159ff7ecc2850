"""A source of a server and its lives: one begins over fresh connections, and ends with a failure.

What comes from outside meanwhile, a stop, a look at the lag, a row to be copied again, is for the
life that there is.
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
    """From a checkpoint on, over connections that are open, until ``stop`` or a failure."""

    errands: Errands

    def stop(self) -> None:
        """Let it end soon."""
        ...

    async def behind(self, server: Asked) -> Behind:
        """Return how far rowtide is behind; ``server`` is a session that nobody else uses."""
        ...


class ServerSource(ABC, Generic[Server]):
    """What sources of a server share. ``Server`` is a session."""

    def __init__(self) -> None:
        self._life: Life[Server] | None = None
        self._gauge: Server | None = None
        self.stopping = False

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Raise what a failure of the server means for a source."""

    def began(self, life: Life[Server], gauge: Server) -> None:
        """Ask a life from now on; ``gauge`` is the session for its lag."""
        self._life, self._gauge = life, gauge
        if self.stopping:
            life.stop()

    def ended(self) -> None:
        """Ask nobody any more; whoever still waits for the life is told."""
        if self._life is not None:
            self._life.errands.end()
        self._life = None

    def stop(self) -> None:
        """Let ``run`` end at the next place from which nothing is repeated."""
        self.stopping = True
        if self._life is not None:
            self._life.stop()

    async def behind(self) -> Behind | None:
        """See ``Measurable``."""
        life, gauge = self._life, self._gauge
        if life is None or gauge is None:
            return None
        with self.translated():
            return await life.behind(gauge)

    async def copy_again(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """See ``CopiesRows``."""
        if self._life is None:
            raise follows_nothing()
        await self._life.errands.ask(table, key, write)
