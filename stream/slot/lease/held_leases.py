"""A worker's state of each slot's lease: its own claim, or what it reads of another's."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from rowtide.core.cluster.lease import LeaseView
from rowtide.stream.log.log import Log
from rowtide.stream.log.shared_work import SharedWork

__all__ = ["UNREAD", "HeldLease", "Watched"]

UNREAD = -1
"""In place of an offset: the next record is the first one that is still kept."""

LAPSE_S = 5.0
"""Time, from the first request under a lapsed lease, for which requests wait for its
renewal. If no broker answers, all later ones fail at once.
"""


@dataclass(slots=True)
class HeldLease:
    """This worker's claim on one slot. ``sent_s`` is when the last confirmed renewal was sent."""

    claim: int
    log: Log
    view: LeaseView
    sent_s: float
    is_lost: bool = False
    """True if a later claim of another worker was read. A lease that only lapsed is not lost."""
    is_under_way: bool = False
    """True if a renewal was sent and its outcome is not known: no other one is sent."""
    renewals: int = 0
    trim_at: float = math.inf
    """Number of renewals at which older records are trimmed: never while earlier owners may serve.
    """
    proofs: SharedWork = field(default_factory=SharedWork)
    lapse_met_s: float | None = None
    """When a request first met the lapsed lease; None: none has since the last renewal."""
    renewed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each renewal; cleared by a request that begins to wait for the next one."""

    def note_renewal(self, sent_s: float) -> None:
        """Count a valid renewal, and wake the requests that wait for it."""
        self.sent_s = sent_s
        self.renewals += 1
        self.lapse_met_s = None
        self.renewed.set()

    def await_renewal_s(self, now_s: float) -> float:
        """Return how much longer requests should wait for the next renewal, in seconds."""
        if self.lapse_met_s is None:
            self.lapse_met_s = now_s
        return self.lapse_met_s + LAPSE_S - now_s


@dataclass(slots=True)
class Watched:
    """The leases of another worker's slot. ``read_s`` is when they were last read to their end.

    ``since_s`` is the start of the reads without a break. A renewal that was missed in a
    break may be read now, if the broker was silent to its owner too.
    """

    log: Log
    view: LeaseView = field(default_factory=lambda: LeaseView(UNREAD))
    read_s: float = 0.0
    since_s: float = 0.0
    is_under_way: bool = False
    """True if they are already being followed."""
    due_s: float = 0.0
    """When they are read again after a failure."""
    looked: asyncio.Event = field(default_factory=asyncio.Event)
    met: int = -1
    """The last claim of another worker for which a claim of ours was given up."""
