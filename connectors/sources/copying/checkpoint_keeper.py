"""Stores the checkpoint of a source while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rowtide.connectors.sources.progress import SourceProgress, TableProgress
from rowtide.connectors.sources.source import SourceTarget

__all__ = ["KEEP_S", "CheckpointKeeper"]

KEEP_S = 1.0


class CheckpointKeeper:
    """Stores a changed checkpoint, at most once in ``KEEP_S``.

    Call ``note_change`` after each change. A checkpoint names only what is durable.
    """

    def __init__(self, target: SourceTarget, checkpoint: SourceProgress[Any]) -> None:
        self._target = target
        self._checkpoint = checkpoint
        self._kept_s = time.monotonic()
        self._is_changed = False

    @property
    def progress(self) -> Mapping[str, TableProgress]:
        """How far each table is."""
        return self._checkpoint.tables

    def note_change(self) -> None:
        """Record that the checkpoint must be stored."""
        self._is_changed = True

    async def keep(self, *, at_once: bool) -> None:
        """Store the checkpoint if it has changed and is due, or ``at_once``."""
        now_s = time.monotonic()
        if self._is_changed and (at_once or now_s - self._kept_s >= KEEP_S):
            self._is_changed, self._kept_s = False, now_s
            await self.store()

    async def store(self) -> None:
        """Store the checkpoint."""
        await self._target.keep(self._checkpoint.encode())
