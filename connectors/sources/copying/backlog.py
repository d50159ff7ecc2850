"""Parts of a server's log that were read and are not written yet."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from rowtide.connectors.sources.pipe import Pipe

__all__ = ["Backlog"]

Piece = TypeVar("Piece")


class Backlog(Generic[Piece]):
    """The pieces taken from the pipe. ``is_writing``: some of them are not durable yet."""

    def __init__(self, pipe: Pipe[Piece]) -> None:
        self._pipe = pipe
        self.pieces: deque[Piece] = deque()
        self.is_writing = False

    @property
    def is_empty(self) -> bool:
        """True if nothing is left to write."""
        return not self.is_writing and not self.pieces and self._pipe.empty

    async def fill(self, timeout_s: float) -> None:
        """Take what the pipe has, or wait for something. Raises what ended its thread."""
        self.pieces.extend(await self._pipe.take(timeout_s))

    def wake(self) -> None:
        """Make ``fill`` return."""
        self._pipe.wake()
