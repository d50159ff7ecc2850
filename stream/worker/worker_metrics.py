"""Every metric of a worker; ``docs/reference/metrics.md`` explains the list.

Numbers of one table or shard carry its name: a worker with a thousand shards reports some
thousands of them. Counters begin at zero with the process, those of a slot with the slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.operations import Latency
from rowtide.core.release import VERSION
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.http.edge import Edge
from rowtide.stream.http.tally import OK, OUTCOMES, latency_class
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.worker.health import Health
from rowtide.stream.worker.metrics import COUNTER, GAUGE, HISTOGRAM, Family, Sample, histogram

__all__ = ["Watching", "WorkerParts", "families"]

UNUSUAL = (Latency.ADMIN, Latency.OTHER)
"""Classes whose operations the metrics leave out until they are called."""


@dataclass(frozen=True, slots=True)
class Watching:
    """How a worker can be observed.

    ``metrics`` serves ``/metrics`` to any client that reaches the port. A request that
    takes ``slow_request_s`` or longer is logged as slow; 0: never. For ``drain_notice_s``
    after the signal the worker still serves all clients, while ``/readyz`` already
    answers 503. If that is too short, clients meet a closed port.
    """

    metrics: bool = True
    slow_request_s: float = 0.0
    drain_notice_s: float = 0.0


class WorkerParts(NamedTuple):
    """The parts from which the numbers are read."""

    edge: Edge
    health: Health
    slots: Mapping[int, Slot]
    standbys: Mapping[int, Standby]
    counts: Counts
    catalog: Catalog
    consumption: Consumption
    indexes: IndexOperations
    lease_age_s: Callable[[int], float | None]
    free_bytes_min: int


def families(parts: WorkerParts) -> Iterator[Family]:
    """Yield every family of numbers as of now."""
    yield Family(GAUGE, "build_info", "Always 1; the version.", ("version",), [_of(1, VERSION)])
    yield from _requests(parts.edge)
    yield from _appends(parts.counts)
    yield from _leases(parts)
    yield from _slots(parts)
    yield from _shards(parts)
    yield from _standbys(parts)
    yield from _streams(parts)
    yield from _process(parts)


def _of(value: float, *labels: str) -> Sample:
    return Sample(labels, value)


def _counter(name: str, text: str, value: float) -> Family:
    return Family(COUNTER, name, text, (), [_of(value)])


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(GAUGE, name, text, (), [_of(value)])


def _requests(edge: Edge) -> Iterator[Family]:
    tally = edge.tally
    yield Family(
        COUNTER,
        "requests",
        "Answered requests, by what clients may assume.",
        ("operation", "outcome"),
        [
            _of(count, operation.name, OUTCOMES[number])
            for operation in tally.operations()
            for number, count in enumerate(operation.answered)
            # A zero shows that the operation exists; operations of other services have
            # none.
            if count or (number == OK and latency_class(operation.name) not in UNUSUAL)
        ],
    )
    yield Family(
        COUNTER,
        "request_errors",
        "Error answers by code.",
        ("code",),
        [_of(count, code) for code, count in sorted(tally.codes.items())],
    )
    yield Family(
        HISTOGRAM,
        "request_seconds",
        "From a whole request to its answer.",
        ("class",),
        [Sample((kind,), took) for kind, took in sorted(tally.took.items())],
    )
    yield _gauge("connections", "Connections of clients.", edge.connections)
    yield _counter("received_bytes", "Bytes from clients.", tally.bytes_in)
    yield _counter("sent_bytes", "Bytes to clients.", tally.bytes_out)


def _appends(counts: Counts) -> Iterator[Family]:
    yield histogram(
        "append_seconds", "From append to a log until the batch is applied.", counts.appends
    )
    yield _counter("append_records", "Records appended.", counts.append_records)
    yield _counter("append_bytes", "Bytes of records appended.", counts.append_bytes)
    yield _counter("appends_void", "Batches overtaken by another writer.", counts.appends_void)
    yield _counter("appends_unknown", "Batches without an answer in time.", counts.appends_unknown)
    yield histogram("flush_seconds", "Flushes of a slot to the changelog.", counts.flushes)
    yield _counter("flush_entries", "Entries written to the changelog.", counts.flush_entries)
    yield _counter("flush_failures", "Failed flushes; each is retried.", counts.flush_failures)
    yield histogram("recovery_seconds", "Shards opened by reading their logs.", counts.recoveries)
    yield _counter("recovered_records", "Records read for that.", counts.recovered_records)


def _leases(parts: WorkerParts) -> Iterator[Family]:
    counts = parts.counts
    yield Family(
        COUNTER,
        "shard_changes",
        "Finished splits, merges and moves of this worker.",
        ("kind",),
        _by_name(counts.reshapes),
    )
    yield _counter(
        "copied_bytes", "Bytes of moved rows in the logs of the new shards.", counts.copied_bytes
    )
    yield _counter("claims", "Slots claimed.", counts.claims)
    yield _counter("leases_lost", "Slots that another worker has claimed.", counts.leases_lost)
    yield Family(
        COUNTER,
        "lease_renewals",
        "Renewals of leases.",
        ("outcome",),
        [_of(counts.renewals, "ok"), _of(counts.renewals_failed, "failed")],
    )
    ages = [(number, parts.lease_age_s(number)) for number in sorted(parts.slots)]
    yield Family(
        GAUGE,
        "lease_age_seconds",
        "Since the last confirmed renewal was sent.",
        ("slot",),
        [_of(age_s, str(number)) for number, age_s in ages if age_s is not None],
    )


def _slots(parts: WorkerParts) -> Iterator[Family]:
    slots = list(parts.slots.values())
    opened = sum(slot.opened.is_set() for slot in slots)
    states = {"open": opened, "opening": len(slots) - opened}
    yield Family(GAUGE, "slots", "Slots of this worker.", ("state",), _by_name(states))
    states = {
        "open": sum(len(slot.shards) for slot in slots),
        "ended": sum(slot.ended for slot in slots),
        "arriving": sum(slot.arriving for slot in slots),
        "opening": sum(len(slot.opening) for slot in slots),
        "closed": sum(len(slot.all_closed) for slot in slots),
    }
    yield Family(
        GAUGE,
        "shards",
        "Shards of this worker; ended ones have a stream still, those opening can't be opened now, "
        "closed ones stay so.",
        ("state",),
        _by_name(states),
    )
    now_s = time.monotonic()
    ages = [(slot, slot.flushed_s) for slot in slots]
    yield Family(
        GAUGE,
        "flush_age_seconds",
        "Since the changelog had everything.",
        ("slot",),
        [_of(now_s - at_s, str(slot.number)) for slot, at_s in ages if at_s is not None],
    )
    yield from _sums(slots)
    yield from _reclaimers(slots)


def _by_name(numbers: Mapping[str, float]) -> list[Sample]:
    return [_of(number, name) for name, number in numbers.items()]


def _sums(slots: list[Slot]) -> Iterator[Family]:
    """Yield the sums over the shards of each slot."""

    def per_slot(name: str, text: str, number: Callable[[ShardOwner], int]) -> Family:
        samples = [
            _of(sum(number(owner) for owner in slot.shards.values()), str(slot.number))
            for slot in slots
        ]
        return Family(GAUGE, name, text, ("slot",), samples)

    yield per_slot("dirty_chunks", "Chunks for the next flush.", lambda o: len(o.ledger.keys))
    yield per_slot("applied_lag_changes", "Accepted changes, not yet applied.", lambda o: o.pending)
    yield per_slot("open_transactions", "Open transactions.", lambda o: o.transactions.count)


def _reclaimers(slots: list[Slot]) -> Iterator[Family]:
    statuses = [(str(slot.number), slot.reclaimer.status()) for slot in slots]
    for name, text in (
        ("passes", "Passes of the reclaimer through its slot."),
        ("rows", "Chunks that the reclaimer has read."),
        ("ranges", "Ranges with something to remove."),
    ):
        samples = [_of(status[name], number) for number, status in statuses]
        yield Family(COUNTER, f"reclaimer_{name}", text, ("slot",), samples)
    paused = [_of(status["paused"], number) for number, status in statuses]
    yield Family(GAUGE, "reclaimer_paused", "1 while it is paused.", ("slot",), paused)


def _shards(parts: WorkerParts) -> Iterator[Family]:
    labels = ("instance", "table", "shard", "slot")
    ends: list[Sample] = []
    starts: list[Sample] = []
    unflushed: list[Sample] = []
    for slot in parts.slots.values():
        for shard_id, owner in slot.shards.items():
            table = owner.shard.table
            names = (table.instance, table.name, shard_id, str(slot.number))
            ends.append(Sample(names, owner.end))
            starts.append(Sample(names, slot.starts.get(shard_id, 0)))
            behind = owner.end - 1 - owner.rows.find_flushed(shard_id)
            unflushed.append(Sample(names, max(0, behind)))
    yield Family(GAUGE, "log_end_offset", "Next offset of a shard's log.", labels, ends)
    yield Family(GAUGE, "log_start_offset", "First offset kept, as last seen.", labels, starts)
    yield Family(GAUGE, "unflushed_records", "Records that the changelog lacks.", labels, unflushed)


def _standbys(parts: WorkerParts) -> Iterator[Family]:
    standbys = sorted(parts.standbys.items())
    yield Family(
        GAUGE,
        "standby_warm",
        "1 where the slot could be opened here with little to read.",
        ("slot",),
        [_of(standby.is_warm, str(number)) for number, standby in standbys],
    )
    yield Family(
        GAUGE,
        "standby_lag_records",
        "Records of the logs that the copy lacks.",
        ("slot",),
        [_of(standby.lag, str(number)) for number, standby in standbys],
    )
    ages = [(number, standby.age_s()) for number, standby in standbys]
    yield Family(
        GAUGE,
        "standby_lag_seconds",
        "Age of the copy's view.",
        ("slot",),
        [_of(age_s, str(number)) for number, age_s in ages if age_s is not None],
    )
    counts = parts.counts
    yield _counter("standby_records", "Records folded into copies.", counts.standby_records)
    yield Family(
        COUNTER,
        "bounded_reads",
        "Reads that allow staleness, by who answered.",
        ("answered",),
        [_of(counts.bounded_copy, "copy"), _of(counts.bounded_owner, "owner")],
    )


def _streams(parts: WorkerParts) -> Iterator[Family]:
    yield _counter("stream_reads", "Pages of streams read.", parts.counts.stream_reads)
    yield _counter("stream_records", "Records in those pages.", parts.counts.stream_records)
    labels = ("instance", "table", "index")
    lags = parts.indexes.lags()
    yield Family(
        GAUGE,
        "index_lag_records",
        "Entries of the table's logs that a global index has not read.",
        labels,
        [Sample(names, records) for names, records, _ in lags],
    )
    yield Family(
        GAUGE,
        "index_lag_seconds",
        "Seconds from the last commit that a global index has to the last one of its table.",
        labels,
        [Sample(names, seconds) for names, _, seconds in lags],
    )


def _process(parts: WorkerParts) -> Iterator[Family]:
    health, counts = parts.health, parts.counts
    yield _gauge("ready", "1 while /readyz says so.", not health.reasons())
    yield histogram(
        "event_loop_delay_seconds",
        "Delay of a task that sleeps a tenth of a second.",
        counts.loop_delay,
    )
    yield _gauge(
        "free_disk_bytes", "Free bytes on the disk of the data directory.", health.free_bytes
    )
    yield _gauge("free_disk_min_bytes", "Below it writes are rejected.", parts.free_bytes_min)
    age_s = health.broker_age_s
    if age_s is not None:
        yield _gauge("broker_answer_age_seconds", "Since a broker answered.", age_s)
    yield _counter("broker_restarts", "Restarts of the embedded broker.", counts.broker_restarts)
    yield Family(
        COUNTER,
        "consumed_units",
        "Capacity units by table.",
        ("instance", "table", "kind"),
        [
            Sample((instance, table, kind), units)
            for (instance, table), used in parts.consumption.totals().items()
            if parts.catalog.table(instance, table) is not None
            for kind, units in zip(("read", "write"), used, strict=True)
        ],
    )
