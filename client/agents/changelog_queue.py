"""The queue from which Faust recovers tables, without records of an earlier assignment.

Faust's recovery drops a record whose offset is not above the last one of its partition. A late
record that was read for an earlier assignment has a high offset. So it would hide all records
before it, and the table would miss them.
"""

from __future__ import annotations

from typing import Any

from mode.utils.queues import ThrowableQueue

__all__ = ["ChangelogQueue"]


class ChangelogQueue(ThrowableQueue):  # type: ignore[misc]
    """A queue of changelog events that passes over those of an earlier generation."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            app.conf.stream_buffer_maxsize, flow_control=app.flow_control, clear_on_resume=True
        )
        self._app = app

    async def get(self) -> Any:
        """Return the next event of the present generation."""
        while True:
            event = await super().get()
            if event.message.generation_id == self._app.consumer_generation_id:
                return event
