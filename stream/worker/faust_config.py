"""What can be set about a worker's place in the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.stream.log.kafka.config import Security

__all__ = ["Division", "MembershipConfig"]


class Division(NamedTuple):
    """How the group has divided the slots, as one worker was told; workers by address."""

    owned: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    """Slots that this worker is to keep copies of."""
    owners: Mapping[int, str] = {}
    standbys: Mapping[int, Sequence[str]] = {}


@dataclass(frozen=True, slots=True)
class MembershipConfig:
    """How a worker joins the group that divides the slots."""

    bootstrap: str
    """Brokers as host:port, with commas."""

    group: str
    """Name of the group, and of the Faust app. All workers of one store share it."""

    instance: str
    """Name of this worker across restarts: after kill -9 it gets its slots back at once, not at
    the session time-out. Two live workers of one name take turns at throwing each other out."""

    address: str
    """host:port at which other workers reach this one."""

    slots: int
    """Partitions of ``rows``; fixed when the changelog topic was created."""

    session_timeout_ms: int = 6000
    """After this long without a sign the group divides a killed worker's slots. Others have taken
    them over by then, as its leases tell; more delays that they are level again. Brokers refuse
    less than their ``group.min.session.timeout.ms`` (6000 unless set)."""

    standbys: int = 0
    """Copies of each slot kept warm on other workers. All workers of a group need the same."""

    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise ValueError(f"slots must be at least 1, not {self.slots}")
        if self.standbys < 0:
            raise ValueError(f"standbys must be 0 or more, not {self.standbys}")
        if not 1000 <= self.session_timeout_ms <= 1_800_000:
            raise ValueError(
                f"session_timeout_ms must be 1000 to 1800000, not {self.session_timeout_ms}"
            )
        if not (self.group and self.instance and ":" in self.address):
            raise ValueError("a worker needs a group, an instance and an address host:port")

    @property
    def changelog_topic(self) -> str:
        """Name that Faust gives the changelog of ``rows``."""
        return f"{self.group}-rows-changelog"
