"""What is wrong with a cluster, found in the status of its workers. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["ClusterFault", "find_faults"]

FLUSH_AGE_S_MAX = 600.0
INDEX_BEHIND_S_MAX = 60.0
FREE_RATIO_WARN = 2.0
"""Below this multiple of the free bytes that writes need, the disk fills up."""

CAUSES = ("broker_silent", "disk_full", "shard_closed", "worker_silent", "slot_fails")
"""Kinds that other faults follow from: a silent broker takes all leases with it."""

Status = Mapping[str, Any]


class ClusterFault(NamedTuple):
    """One thing that is wrong. Texts ``health.KIND`` and ``health.KIND_do`` say it and its remedy.

    ``subject`` is the worker, slot, shard or index; ``reason`` the server's own words.
    """

    kind: str
    subject: str
    is_bad: bool
    reason: str = ""

    @property
    def name(self) -> str:
        """Return what is the same for one fault at two moments, and differs for others."""
        return f"{self.kind} {self.subject}"


def find_faults(workers: Sequence[Status]) -> list[ClusterFault]:
    """Return what is wrong: causes before what follows from them, warnings last."""
    found = [fault for worker in workers for fault in _faults_of(worker)]
    return sorted(found, key=_rank)


def _rank(fault: ClusterFault) -> tuple[bool, int]:
    place = CAUSES.index(fault.kind) if fault.kind in CAUSES else len(CAUSES)
    return not fault.is_bad, place


def _faults_of(worker: Status) -> Iterator[ClusterFault]:
    address = str(worker["address"])
    if "error" in worker:
        yield ClusterFault("worker_silent", address, True, str(worker["error"]))
        return
    free, least = worker["free_bytes"], worker["free_bytes_min"]
    if free < least:
        yield ClusterFault("disk_full", address, True, _megabytes(free, least))
    elif free < least * FREE_RATIO_WARN:
        yield ClusterFault("disk_filling", address, False, _megabytes(free, least))
    others = [reason for reason in worker["reasons"] if reason not in ("drained", "draining")]
    slots = worker["slots"]
    # A slot's own faults say more than the worker's sentence about it.
    whole = [reason for reason in others if not reason.startswith(("slot ", "the disk has"))]
    for reason in whole:
        yield ClusterFault(_kind_of(reason), address, True, reason)
    if worker.get("drained"):
        yield ClusterFault("worker_drained", address, False)
    for slot in slots:
        yield from _faults_of_slot(address, slot)
    for copy in worker["standbys"]:
        for shard, reason in copy["faults"].items():
            yield ClusterFault("standby", f"{shard} @ {address}", False, str(reason))
    for index in worker["indexes"]:
        if index["behind_s"] > INDEX_BEHIND_S_MAX:
            subject = f"{index['instance']}/{index['table']}/{index['index']}"
            yield ClusterFault("index_behind", subject, False, f"{index['behind_s']:.0f} s")


def _kind_of(reason: str) -> str:
    """Return the kind of a reason for which a worker is not ready."""
    if reason.startswith("no broker has answered"):
        return "broker_silent"
    return "keys_old" if reason.startswith("access keys") else "worker_not_ready"


def _faults_of_slot(address: str, slot: Status) -> Iterator[ClusterFault]:
    subject = f"{slot['slot']} @ {address}"
    if slot["failure"] is not None:
        yield ClusterFault("slot_fails", subject, True, str(slot["failure"]))
    elif not slot["open"]:
        yield ClusterFault("slot_waits", subject, True)
    elif not slot["lease"]:
        yield ClusterFault("slot_lease", subject, True)
    for shard, reason in slot["closed"].items():
        yield ClusterFault("shard_closed", str(shard), True, str(reason))
    for shard, reason in slot["opening"].items():
        yield ClusterFault("shard_opening", str(shard), True, str(reason))
    flush_age_s = slot["flush_age_s"]
    waiting = any(shard["unflushed"] for shard in slot["shards"])
    if waiting and flush_age_s is not None and flush_age_s > FLUSH_AGE_S_MAX:
        yield ClusterFault("flush_overdue", subject, False, f"{flush_age_s:.0f} s")


def _megabytes(free: int, least: int) -> str:
    return (
        f"{free / 1e6:,.0f} MB < {least / 1e6:,.0f} MB" if free < least else f"{free / 1e6:,.0f} MB"
    )
