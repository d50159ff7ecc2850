"""The states of a standby, and the table of transitions between them.

Each state is a class with only the fields that exist in it. The page
``docs/internals/slot-life.md`` draws the table, and a test compares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rowtide.stream.shard.row_store import RowStore, StoreFailed
from rowtide.stream.slot.transitions import Transition, require_transition

__all__ = [
    "STANDBY_TRANSITIONS",
    "CatchingUpStandby",
    "ClosedStandby",
    "FailedStandby",
    "FollowingStandby",
    "OpenStandby",
    "StandbyEvent",
    "StandbyLife",
    "StandbyState",
]


class StandbyEvent(Enum):
    """An event that leads from one state to another."""

    OPEN_ROWS = "rows opened"
    CATCH_UP = "caught up"
    FAIL = "rows failed"
    CLOSE = "closed"


@dataclass(frozen=True, slots=True)
class ClosedStandby:
    """Nothing is open: before the first life, between two lives, and when it has ended."""


@dataclass(frozen=True, slots=True)
class OpenStandby:
    """The field of all other states: the open rows."""

    rows: RowStore


@dataclass(frozen=True, slots=True)
class CatchingUpStandby(OpenStandby):
    """The rows read the changelog, up to the end that it had first. No log is followed."""


@dataclass(frozen=True, slots=True)
class FollowingStandby(OpenStandby):
    """The rows follow the changelog, and the log of every shard."""


@dataclass(frozen=True, slots=True)
class FailedStandby(OpenStandby):
    """The rows could not be read when the catalog changed. The standby's task closes them soon."""

    failure: StoreFailed


StandbyState = ClosedStandby | CatchingUpStandby | FollowingStandby | FailedStandby

STANDBY_TRANSITIONS = (
    Transition(ClosedStandby, StandbyEvent.OPEN_ROWS, CatchingUpStandby, "read the changelog"),
    Transition(CatchingUpStandby, StandbyEvent.CATCH_UP, FollowingStandby, "follow every log"),
    Transition(FollowingStandby, StandbyEvent.FAIL, FailedStandby, "show no shard"),
    Transition(FailedStandby, StandbyEvent.FAIL, FailedStandby, "show no shard"),
    Transition(CatchingUpStandby, StandbyEvent.CLOSE, ClosedStandby, "close the rows"),
    Transition(FollowingStandby, StandbyEvent.CLOSE, ClosedStandby, "close the rows"),
    Transition(FailedStandby, StandbyEvent.CLOSE, ClosedStandby, "close the rows"),
)


class StandbyLife:
    """The state of a standby."""

    def __init__(self) -> None:
        self.state: StandbyState = ClosedStandby()

    def move(self, event: StandbyEvent, state: StandbyState) -> None:
        """Enter ``state``; the table must lead there from the present state by ``event``."""
        require_transition(STANDBY_TRANSITIONS, event, state=self.state, next_state=state)
        self.state = state
