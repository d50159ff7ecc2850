"""Follows the ends of many logs, for workers that keep copies of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rowtide.stream.log.log import Entry

__all__ = ["Tail", "TailFollower", "Tails"]


class TailFollower(Protocol):
    """Gets the entries of a log."""

    def take(self, entries: Sequence[Entry], end: int, asked_s: float) -> None:
        """Take the next entries, perhaps none; the log had ``end`` at ``asked_s`` or later."""
        ...

    def note_trim(self) -> None:
        """Note that the next entry was trimmed; the log is followed no more."""
        ...


@dataclass(slots=True, eq=False)
class Tail:
    """One log that is followed: ``offset`` is the next to read."""

    topic: str
    offset: int
    follower: TailFollower
    least: int = 0
    """The log's end when its leader was found: a new leader may report less for a moment."""
    pause_s: float = 0.0
    due_s: float = 0.0
    left: bool = False


class Tails(Protocol):
    """The logs that a worker follows."""

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        """Report the entries of a topic's partition 0 from ``offset`` on to ``follower``."""
        ...

    def leave(self, tail: Tail) -> None:
        """Stop following: the follower gets no more calls."""
        ...

    async def run(self) -> None:
        """Follow until cancelled."""
        ...
