"""The states of a standby, and the table of what leads from one to another.

Each state is a class that has only what exists in it. The page ``docs/internals/slot-life.md``
draws the table, and a test compares them.
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
    """What leads from one state to another."""

    OPEN_ROWS = "rows opened"
    CATCH_UP = "caught up"
    FAIL = "rows failed"
    CLOSE = "closed"


@dataclass(frozen=True, slots=True)
class ClosedStandby:
    """Nothing is open: before the first life, between two lives, and when it has ended."""


@dataclass(frozen=True, slots=True)
class OpenStandby:
    """What all other states have: the open rows."""

    rows: RowStore


@dataclass(frozen=True, slots=True)
class CatchingUpStandby(OpenStandby):
    """The rows read the changelog, up to what was its end at the beginning. No log is followed."""


@dataclass(frozen=True, slots=True)
class FollowingStandby(OpenStandby):
    """The rows follow the changelog, and the log of every shard."""


@dataclass(frozen=True, slots=True)
class FailedStandby(OpenStandby):
    """The rows could not be read when the catalog changed. Its task closes them soon."""

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
    """Which state a standby is in."""

    def __init__(self) -> None:
        self.state: StandbyState = ClosedStandby()

    def move(self, event: StandbyEvent, state: StandbyState) -> None:
        """Enter ``state``, to which the table says that ``event`` leads from the present one."""
        require_transition(STANDBY_TRANSITIONS, event, state=self.state, next_state=state)
        self.state = state
