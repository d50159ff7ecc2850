"""Configuration of a worker's membership in the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.stream.log.kafka.config import Security

__all__ = ["Division", "MembershipConfig"]


class Division(NamedTuple):
    """How the group has divided the slots, as last reported to this worker; workers by address."""

    owned: frozenset[int] = frozenset()
    standby: frozenset[int] = frozenset()
    """Slots of which this worker keeps copies."""
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
    """Name of this worker across restarts. After kill -9 it gets its slots back at once,
    not after the session time-out. Two live workers with one name keep removing each
    other from the group.
    """

    address: str
    """host:port at which other workers reach this one."""

    slots: int
    """Number of partitions of ``rows``; fixed when the changelog topic was created."""

    session_timeout_ms: int = 6000
    """Time without a heartbeat after which the group divides a dead worker's slots. By
    then other workers have taken them over, because its leases have ended. A larger value
    delays only the even division. Brokers reject a value below their
    ``group.min.session.timeout.ms`` (6000 by default).
    """

    standbys: int = 0
    """Number of warm copies of each slot on other workers. Equal on all workers of a group."""

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
