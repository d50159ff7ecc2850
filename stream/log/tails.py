"""What follows the ends of many logs, as those use it who keep a copy of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rowtide.stream.log.log import Entry

__all__ = ["Tail", "TailFollower", "Tails"]


class TailFollower(Protocol):
    """Who is told what a log has."""

    def take(self, entries: Sequence[Entry], end: int, asked_s: float) -> None:
        """Take the next entries, perhaps none; the log ended at ``end`` when or after asked."""
        ...

    def trimmed(self) -> None:
        """Learn that the next entry is gone; the log is followed no more."""
        ...


@dataclass(slots=True, eq=False)
class Tail:
    """One log that is followed: ``offset`` is the next to read."""

    topic: str
    offset: int
    follower: TailFollower
    least: int = 0
    """The log's end as of when its leader was found: a new leader may tell less for a moment."""
    pause_s: float = 0.0
    due_s: float = 0.0
    left: bool = False


class Tails(Protocol):
    """The logs that a worker follows."""

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        """Tell ``follower`` what partition 0 of a topic has from ``offset`` on."""
        ...

    def leave(self, tail: Tail) -> None:
        """Follow no more. Nothing is told from now on."""
        ...

    async def run(self) -> None:
        """Follow until cancelled."""
        ...
