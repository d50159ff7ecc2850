"""A worker's decision about one slot: the states of its place in the roster.

The page ``docs/internals/slot-life.md`` has the table, and a test compares them. The
state does not say if a slot runs right now: a slot that is due still drains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rowtide.stream.slot.transitions import Transition, require_transition

__all__ = [
    "PLACE_TRANSITIONS",
    "DuePlace",
    "GivenPlace",
    "IdlePlace",
    "PlaceEvent",
    "PlaceState",
    "SlotPlace",
    "WantedPlace",
]


class PlaceEvent(Enum):
    """An event that leads from one state to another."""

    WANT = "wanted"
    GIVE = "given away for a time"
    END = "asked for, or the time is over"


@dataclass(frozen=True, slots=True)
class IdlePlace:
    """The slot was never this worker's."""


@dataclass(frozen=True, slots=True)
class WantedPlace:
    """The slot is this worker's: it runs, or is about to."""


@dataclass(frozen=True, slots=True)
class GivenPlace:
    """The slot runs until another worker requests it, or the time is over."""


@dataclass(frozen=True, slots=True)
class DuePlace:
    """The slot drains, or has ended."""


PlaceState = IdlePlace | WantedPlace | GivenPlace | DuePlace

PLACE_TRANSITIONS = (
    Transition(IdlePlace, PlaceEvent.WANT, WantedPlace, "run the slot"),
    Transition(IdlePlace, PlaceEvent.GIVE, GivenPlace, "wait"),
    Transition(IdlePlace, PlaceEvent.END, DuePlace, "wait"),
    Transition(WantedPlace, PlaceEvent.WANT, WantedPlace, "run the slot"),
    Transition(WantedPlace, PlaceEvent.GIVE, GivenPlace, "serve until another worker asks"),
    Transition(WantedPlace, PlaceEvent.END, DuePlace, "drain and end the slot"),
    Transition(GivenPlace, PlaceEvent.WANT, WantedPlace, "run the slot"),
    Transition(GivenPlace, PlaceEvent.GIVE, GivenPlace, "serve until another worker asks"),
    Transition(GivenPlace, PlaceEvent.END, DuePlace, "drain and end the slot"),
    Transition(DuePlace, PlaceEvent.WANT, WantedPlace, "run the slot, again if it has ended"),
    Transition(DuePlace, PlaceEvent.END, DuePlace, "drain and end the slot"),
)


class Countdown:
    """A timer that may be stopped and started again."""

    def __init__(self) -> None:
        self._timers: list[asyncio.TimerHandle] = []

    def start(self, after_s: float, call: Callable[[], None]) -> None:
        """Call ``call`` after ``after_s`` seconds."""
        self._timers.append(asyncio.get_running_loop().call_later(after_s, call))

    def stop(self) -> None:
        """Cancel every started timer."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class SlotPlace:
    """A worker's decision about a slot, and about a copy of it.

    ``unwanted`` is set once the slot was given away, ``due`` when it must drain,
    ``ended`` while it does not run. ``changed`` is set by every decision that matters
    while it does not run.
    """

    def __init__(self) -> None:
        self.has_standby = False
        self.state: PlaceState = IdlePlace()
        self.changed = asyncio.Event()
        self.unwanted = asyncio.Event()
        self.due = asyncio.Event()
        self.ended = asyncio.Event()
        self.ended.set()
        self._countdown = Countdown()

    @property
    def is_wanted(self) -> bool:
        """True if the slot is this worker's now."""
        return isinstance(self.state, WantedPlace)

    def keep_standby(self, *, wanted: bool) -> None:
        """Keep a copy while the slot does not run here, or keep none."""
        self.has_standby = wanted
        self.changed.set()

    def want(self) -> None:
        """Run the slot: from now on, or again."""
        self._countdown.stop()
        self._move(PlaceEvent.WANT, WantedPlace())
        self.unwanted.clear()
        self.due.clear()
        self.changed.set()

    def give(self, after_s: float) -> None:
        """Run the slot until it is requested, or for ``after_s`` seconds."""
        self.unwanted.set()
        self._countdown.stop()
        if not after_s:
            self.end()
            return
        if not isinstance(self.state, DuePlace):  # Else it drains already.
            self._move(PlaceEvent.GIVE, GivenPlace())
        self._countdown.start(after_s, self.end)

    def end(self) -> None:
        """Drain the slot now: another worker requests it, or the time is over."""
        self._move(PlaceEvent.END, DuePlace())
        self.due.set()

    def _move(self, event: PlaceEvent, state: PlaceState) -> None:
        """Enter ``state``; the table must lead there from the present state by ``event``."""
        require_transition(PLACE_TRANSITIONS, event, state=self.state, next_state=state)
        self.state = state
