"""When Faust has recovered the tables of this worker's present partitions.

Faust's own flags do not say it. A recovery that a rebalance interrupts near its end may still
resume the streams and report "ready", before Faust knows which partitions this worker keeps. An
agent would then count into partitions of other workers, and the next recovery would put older
values over newer ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["RecoveryWatch"]


class RecoveryWatch:
    """Follows the rebalances of an app, from before it starts."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._assigned: int | None = None
        """The generation of the last assignment; None from the beginning of a rebalance on."""
        self._recovered: int | None = None
        """The generation whose tables are recovered."""
        self._follows_recovery = False
        app.on_partitions_assigned.connect(self._note_assignment)

    @property
    def is_ready(self) -> bool:
        """True while the tables are recovered and Faust moves no partitions."""
        return (
            self._assigned is not None
            and self._assigned == self._recovered
            and not self._app.should_stop
            and bool(self._app.flow_control.is_active())
        )

    def begin_rebalance(self) -> None:
        """Note that Faust begins to move partitions. Call it when Faust revokes some."""
        self._assigned = None
        if not self._follows_recovery:
            self._follows_recovery = True
            recovery = self._app.tables.recovery
            # With tables Faust calls the first, without tables the second.
            recovery.on_recovery_completed = self._follow(recovery.on_recovery_completed)
            recovery._resume_streams = self._follow(recovery._resume_streams)

    async def _note_assignment(self, *_: object, **__: object) -> None:
        self._assigned = self._app.consumer_generation_id

    def _follow(self, complete: Callable[[int], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """Return ``complete``, which ends a recovery of a generation, with a note of it."""

        async def complete_and_note(generation_id: int = 0) -> None:
            await complete(generation_id)
            # An interrupted recovery is of an earlier generation, or ends before an assignment.
            if generation_id == self._assigned:
                self._recovered = generation_id

        return complete_and_note
