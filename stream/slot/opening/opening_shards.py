"""The shards that a slot opens or has open, their progress, and why one is not open yet.

A shard that cannot be opened now is retried as long as the catalog has it. Other work
waits for at most one attempt. Its log may be missing: a topic that was deleted by hand. A
broker that starts, or was cut off, may not know an existing topic. So a log counts as
gone only if it was missing at every attempt for a minute. Its shard is then reported as
closed, until the log is back.

Times are seconds of a clock that never goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from rowtide.core.values.errors import Unavailable

__all__ = ["Opening", "OpeningShards"]

MISSING_S = 60.0
"""A log that was missing for this long counts as gone."""


class Opening:
    """One shard that is open or about to be, in a task of its own: ``serve``, of this opening.

    ``tried`` is set after the first attempt. ``served`` is set once the shard is open, or
    never will be, or its task has ended.
    """

    __slots__ = ("_clock_s", "_task", "is_lost", "missing_since_s", "served", "tried", "why")

    def __init__(
        self,
        serve: Callable[[Opening], Coroutine[Any, Any, None]],
        tasks: asyncio.TaskGroup,
        name: str,
        clock_s: Callable[[], float],
    ) -> None:
        self.tried = asyncio.Event()
        self.served = asyncio.Event()
        self.why = ""
        """Why the last attempt failed; empty if it succeeded."""
        self.missing_since_s: float | None = None
        """When its log was first missing; None while it is not."""
        self.is_lost = False
        """True if its task ended, as when the slot closes, before the opening was decided."""
        self._clock_s = clock_s
        self._task = tasks.create_task(serve(self), name=name)
        self._task.add_done_callback(self._end)  # It may end before it has begun.

    def cancel(self) -> None:
        """Cancel the task that opens and serves the shard."""
        self._task.cancel()

    def _end(self, _task: asyncio.Task[None]) -> None:
        self.is_lost = not self.served.is_set()
        self.served.set()

    def note_decided(self) -> None:
        """Record that the shard is open, or never will be."""
        self.why, self.missing_since_s = "", None
        self.tried.set()
        self.served.set()

    def note_failure(self, why: str, *, missing: bool) -> None:
        """Record a failed attempt, which is retried later; ``missing``: its log was missing."""
        self.why = f"its log does not exist: {why}" if missing else why
        if not missing:
            self.missing_since_s = None
        elif self.missing_since_s is None:
            self.missing_since_s = self._clock_s()
        self.tried.set()

    @property
    def is_gone(self) -> bool:
        """True if the log was missing for so long that it counts as gone."""
        since_s = self.missing_since_s
        return since_s is not None and self._clock_s() >= since_s + MISSING_S


class OpeningShards(dict[str, Opening]):
    """The opening shards of one slot, by shard id."""

    def waiting(self) -> dict[str, str]:
        """Return why shards are not open yet."""
        return {
            i: opening.why for i, opening in self.items() if opening.why and not opening.is_gone
        }

    def find_gone(self, shard_id: str) -> str | None:
        """Return why a shard is closed whose log counts as gone; None for any other."""
        opening = self.get(shard_id)
        return opening.why if opening is not None and opening.is_gone else None

    def all_gone(self) -> dict[str, str]:
        """Return the shards whose logs count as gone, each with its reason."""
        return {shard_id: why for shard_id in self if (why := self.find_gone(shard_id)) is not None}

    async def wait_until_tried(self) -> None:
        """Wait for the first attempt of every present shard."""
        for opening in list(self.values()):
            await opening.tried.wait()

    async def wait_until_served(self, shard_ids: Collection[str], *, within_s: float) -> None:
        """Wait until it is decided for these shards if they open.

        Raises ``Unavailable`` if that takes too long, or the slot closes first.
        """
        try:
            async with asyncio.timeout(within_s):
                for opening in [self[shard_id] for shard_id in shard_ids if shard_id in self]:
                    await opening.served.wait()
                    if opening.is_lost:
                        raise Unavailable
        except TimeoutError as error:
            raise Unavailable(f"of {', '.join(shard_ids)} not all are open") from error
