"""The states of a slot on this worker, and the table of transitions between them.

Each state is a class with only the fields that exist in it: a slot that prepares has rows
and no claim. ``TRANSITIONS`` is the whole table; ``SlotLife`` rejects any other step. The
page ``docs/internals/slot-life.md`` draws the same table, and a test compares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.tasks import LifeTasks
from rowtide.stream.slot.transitions import Transition, require_transition

__all__ = [
    "TRANSITIONS",
    "ClaimedSlot",
    "ClaimingSlot",
    "ClosedSlot",
    "DrainingSlot",
    "LifeEvent",
    "OwnedSlot",
    "PreparingSlot",
    "ServingSlot",
    "SlotLife",
    "SlotState",
    "StartedSlot",
]


class LifeEvent(Enum):
    """An event that leads from one state to another."""

    LEAVE = "left to others"
    OPEN_ROWS = "rows opened"
    HAND_OVER = "handed over"
    CLAIM = "claimed"
    OPEN_SHARDS = "shards opened"
    DRAIN = "drained"
    DISCARD_ROWS = "rows discarded"
    CLOSE = "closed"


@dataclass(frozen=True, slots=True)
class ClosedSlot:
    """Nothing is open: before the first life, and between two lives.

    ``is_foreign``: another worker may serve the slot, and this one must request it.
    """

    is_foreign: bool


@dataclass(frozen=True, slots=True)
class StartedSlot:
    """The fields of all other states: the tasks of this life, and the open rows."""

    tasks: LifeTasks
    rows: RowStore
    is_foreign: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class PreparingSlot(StartedSlot):
    """The rows are brought up to date. Another worker may serve the slot meanwhile."""

    is_foreign: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ClaimingSlot(StartedSlot):
    """The former owner has stopped. It is not known yet if this worker's claim is valid."""


@dataclass(frozen=True, slots=True)
class OwnedSlot(StartedSlot):
    """The fields of the states under a claim."""

    claim: int


@dataclass(frozen=True, slots=True)
class ClaimedSlot(OwnedSlot):
    """The slot is this worker's. Its shards open one after another."""


@dataclass(frozen=True, slots=True)
class ServingSlot(OwnedSlot):
    """Every shard is open, or was tried. The upkeep jobs run."""


@dataclass(frozen=True, slots=True)
class DrainingSlot(ServingSlot):
    """The slot serves until its last flush ends; then its shards answer their accepted requests."""


SlotState = ClosedSlot | PreparingSlot | ClaimingSlot | ClaimedSlot | ServingSlot | DrainingSlot


def _ends() -> Iterator[Transition]:
    """Yield the ways in which a life ends, from every state after the first."""
    for state in (PreparingSlot, ClaimingSlot, ClaimedSlot, ServingSlot, DrainingSlot):
        yield Transition(state, LifeEvent.CLOSE, ClosedSlot, "close the rows; open again later")
        yield Transition(state, LifeEvent.DISCARD_ROWS, ClosedSlot, "rebuild the rows from Kafka")


TRANSITIONS = (
    Transition(ClosedSlot, LifeEvent.LEAVE, ClosedSlot, "let another worker take the slot"),
    Transition(
        ClosedSlot, LifeEvent.OPEN_ROWS, PreparingSlot, "read the changelog; ask for the slot"
    ),
    Transition(PreparingSlot, LifeEvent.HAND_OVER, ClaimingSlot, "append the claim"),
    Transition(ClaimingSlot, LifeEvent.CLAIM, ClaimedSlot, "fence the changelog; open the shards"),
    Transition(ClaimedSlot, LifeEvent.OPEN_SHARDS, ServingSlot, "start the upkeep jobs"),
    Transition(ServingSlot, LifeEvent.DRAIN, DrainingSlot, "flush; answer; release the lease"),
    *_ends(),
)


class SlotLife:
    """The state of a slot. ``opened`` is set while it is serving or draining."""

    def __init__(self) -> None:
        self.claim = -1
        """The last claim, in this life or an earlier one; -1 before the first."""
        self.state: SlotState = ClosedSlot(is_foreign=True)
        self.opened = asyncio.Event()

    def move(self, event: LifeEvent, state: SlotState) -> None:
        """Enter ``state``; the table must lead there from the present state by ``event``."""
        require_transition(TRANSITIONS, event, state=self.state, next_state=state)
        self.state = state
        if isinstance(state, OwnedSlot):
            self.claim = state.claim
        if isinstance(state, ServingSlot):
            self.opened.set()
        else:
            self.opened.clear()
