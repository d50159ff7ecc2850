"""Configuration of one worker."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rowtide.core.cluster.balance import BalanceSettings
from rowtide.core.values.limits import Limits
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.measures.clock import MachineClock
from rowtide.stream.routing.introduction import Credentials
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.worker.worker_metrics import Watching

__all__ = ["WorkerConfig"]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One worker. ``slots`` takes effect only when rowtide's topics are created; it is
    fixed then.

    Writes are rejected while the disk of ``data_dir`` has less than ``free_bytes_min``
    free. If that is too low, the disk fills up and the broker stops; if it is too high,
    writes are rejected early. ``clock`` is the machine's, except in some tests. Other
    workers reach this one at the host ``advertise``; empty: ``host``. ``standbys`` copies
    of each slot are kept on other workers; all workers of a cluster need the same number.
    """

    data_dir: Path
    credentials: Credentials
    host: str = "127.0.0.1"
    port: int = 0
    slots: int = 4
    free_bytes_min: int = 256 * 1024 * 1024
    limits: Limits = field(default_factory=Limits)
    http: HttpLimits = field(default_factory=HttpLimits)
    slot: SlotSettings = field(default_factory=SlotSettings)
    lease: LeaseSettings = field(default_factory=LeaseSettings)
    advertise: str = ""
    standbys: int = 0
    watching: Watching = field(default_factory=Watching)
    balance: BalanceSettings = field(default_factory=BalanceSettings)
    clock: MachineClock = field(default_factory=MachineClock)
