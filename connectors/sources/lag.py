"""How many seconds a source is behind its server, from two known facts.

Everything committed before the last written change is written. Everything in the server's
log at some moment is written once the source has passed the log's end of that moment. The
later of the two moments counts. The first moves while much is written, the second while
nothing is. Times are the server's, in Unix milliseconds.
"""

from __future__ import annotations

__all__ = ["LagMeter"]

Position = tuple[int, ...]
"""A position in a server's log. It rises."""


class LagMeter:
    """The lag of one life of a source."""

    def __init__(self) -> None:
        self._written_ms = 0
        self._all_until_ms = 0
        self._awaited: tuple[Position, int] | None = None

    def note_written(self, time_ms: int) -> None:
        """Record the commit time of a change that is written now."""
        self._written_ms = time_ms

    def seconds(self, at: Position, end: Position, now_ms: int) -> float | None:
        """Return the lag at ``at`` if the log ended at ``end`` at ``now_ms``.

        None if it is not known yet.
        """
        if self._awaited is not None and at >= self._awaited[0]:
            self._all_until_ms, self._awaited = self._awaited[1], None
        if at >= end:
            self._all_until_ms, self._awaited = now_ms, None
        elif self._awaited is None:
            self._awaited = (end, now_ms)
        # A session may set its own time, which is then the commit time.
        written_ms = self._written_ms if self._written_ms <= now_ms else 0
        until_ms = max(written_ms, self._all_until_ms)
        return max(0, now_ms - until_ms) / 1000 if until_ms else None
