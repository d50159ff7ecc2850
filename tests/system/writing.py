"""Threads that write while a test looks away."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, Self, TypeVar

__all__ = ["Writing"]


Writer = TypeVar("Writer", bound=threading.Thread)


class Writing(Generic[Writer]):
    """Runs ``writers`` until left; they end once ``stop`` is set."""

    def __init__(self, stop: threading.Event, writers: Sequence[Writer]) -> None:
        self.writers = writers
        self._stop = stop

    def __enter__(self) -> Self:
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for writer in self.writers:
            writer.join()
