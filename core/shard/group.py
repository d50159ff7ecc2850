"""Changes that are applied together or not at all: a local transaction, an atomic batch.

Both become a group: records at consecutive offsets in one batch of the log, with the first and the
last one marked. They are evaluated over an overlay of their own. The shard takes them only when all
are evaluated, so an error in the middle leaves nothing behind.

A transaction evaluates each change when its client sends it. The results (versions, increments,
AUTO_INCREMENT values, conditions) do not change at the commit, because no other writer may write
the partition key until then. A batch evaluates all of its changes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rowtide.core.records import record
from rowtide.core.rows import capacity
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.evaluated import Evaluated, Resolved
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.transaction_id import TransactionId, commit_write
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, StoreError, Unavailable, invalid

__all__ = ["AtomicBatch", "Group", "Transaction", "conflict", "form_group", "partition_text"]

ENVELOPE_BYTES = 80
"""Upper bound for what a record adds to its body and key in a batch: envelope, offsets, lengths."""


class Group(Protocol):
    """Changes that are logged together."""

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return the records, which the shard takes as evaluated.

        Raises ``Rejected`` for the whole group. A transaction that is evaluated again, because the
        log rejected its batch, gives the same result.
        """
        ...


class Transaction:
    """An open local transaction of one shard.

    ``partition_key`` is the variant of the first key column. ``expires_s`` is a time of the clock
    that the owner uses for transactions.
    """

    def __init__(
        self, transaction_id: TransactionId, partition_key: bytes, shard: Shard, *, expires_s: float
    ) -> None:
        self.id = transaction_id
        self.partition_key = partition_key
        self.expires_s = expires_s
        self.view = Overlay(shard.view)
        """The rows as this transaction sees them."""
        self.size = 0
        """Bytes of names and values written so far."""
        self.held_bytes = 0
        """Bytes of chunks held in memory."""
        self._changes: list[Resolved] = []

    def require(self, partition_key: bytes) -> None:
        """Raise OTSDataOutOfRange unless a row with this partition key belongs here."""
        if partition_key != self.partition_key:
            raise out_of_scope("transaction", self.partition_key, partition_key)

    def apply(self, shard: Shard, change: ChangeRequest, now_us: int) -> Outcome:
        """Evaluate a change over the rows as this transaction sees them. Raises ``Rejected``."""
        self.require(change.key[0][1])
        limits = shard.limits
        size = self.size + capacity.key_bytes(change.key) + capacity.cells_bytes(change.cells)
        _check_bound("data size", size, limits.transaction_bytes_max)
        _check_bound("row changes", len(self._changes) + 1, limits.transaction_changes_max)
        # The stamp is used up: a later commit has a higher one, and a higher AUTO_INCREMENT value.
        stamp = shard.take_stamp(now_us)
        resolved = shard.resolve(change, self.view, stamp, now_us)
        writes = shard.fold_resolved(resolved, self.view, stamp)
        if writes:
            self.held_bytes += self.view.growth(writes)
            self.view.add(writes)
            self._changes.append(resolved)
            self.size = size
        return shard.outcome(resolved, writes)

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return the records of the commit: the changes in their order, then the id."""
        view = Overlay(shard.view)
        group: list[Evaluated] = []
        for resolved in self._changes:
            evaluated = shard.evaluate_resolved(resolved, view, shard.take_stamp(now_us), now_us)
            if evaluated.body is None:
                continue  # It deletes from an absent row.
            view.add(evaluated.writes)
            group.append(evaluated)
        group.append(commit_record(self.id, shard.take_stamp(now_us)))
        return form_group(group, shard)


class AtomicBatch:
    """Changes of one partition key that are applied together or not at all.

    After ``evaluate`` there is an outcome per change. If it was rejected, ``refused`` is the index
    of the rejected change.
    """

    def __init__(self, changes: Sequence[ChangeRequest]) -> None:
        self.outcomes: list[Outcome] = []
        self.refused: int | None = None
        self.changes = changes

    @property
    def partition_key(self) -> bytes:
        """The variant of the first key column, the same in every change."""
        return self.changes[0].key[0][1]

    def check_scope(self) -> None:
        """Raise OTSDataOutOfRange unless every row has the same partition key."""
        for change in self.changes:
            if change.key[0][1] != self.partition_key:
                raise out_of_scope("atomic", self.partition_key, change.key[0][1])

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return the records. A change that leaves its row unchanged has none."""
        view = Overlay(shard.view)
        group: list[Evaluated] = []
        self.outcomes, self.refused = [], None
        for index, change in enumerate(self.changes):
            stamp = shard.take_stamp(now_us)
            try:
                resolved = shard.resolve(change, view, stamp, now_us)
                evaluated = shard.evaluate_resolved(resolved, view, stamp, now_us)
            except Rejected:
                self.refused = index
                raise
            self.outcomes.append(evaluated.outcome)
            if evaluated.body is not None:
                view.add(evaluated.writes)
                group.append(evaluated)
        return form_group(group, shard)

    def failure(self, index: int, error: StoreError) -> StoreError:
        """Return the failure of one row when the batch is not applied.

        All rows fail with the same code. So a client that retries rows by their code retries all of
        them or none.
        """
        if self.refused is None or index == self.refused:
            return error
        message = f"The atomic batch is not applied, its row {self.refused} fails: {error.message}"
        return Rejected(error.code, message)


def commit_record(transaction_id: TransactionId, stamp: int) -> Evaluated:
    """Return the last record of a transaction's group, which stores the transaction's id."""
    text = str(transaction_id)
    body = record.encode_body(record.Commit(text))
    return Evaluated(Outcome(b"", 0, 0), stamp, b"", body, [commit_write(text, stamp)])


def conflict() -> Unavailable:
    """Return the failure of a request whose partition key an open transaction has locked."""
    return Unavailable("Data is being modified by the other request.", "OTSRowOperationConflict")


def out_of_scope(what: str, partition_key: bytes, other: bytes) -> Rejected:
    """Return the failure of a row with another partition key than the group's."""
    return Rejected(
        "OTSDataOutOfRange",
        f"Data out of scope of {what}. {what.capitalize()} PartKey:"
        f"{partition_text(partition_key)}. Data PartKey:{partition_text(other)}",
    )


def partition_text(value: bytes) -> str:
    """Return a partition key for messages: text, digits, or bytes in hexadecimal."""
    if value[0] in (variant.INF_MIN, variant.INF_MAX):
        return variant.type_name(value).removeprefix("VT_")
    shown = variant.decode(value)
    return shown.hex() if isinstance(shown, bytes) else str(shown)


def form_group(group: list[Evaluated], shard: Shard) -> list[Evaluated]:
    """Mark the first and the last record, and let the shard take the group."""
    size = sum(
        len(evaluated.body or b"") + len(evaluated.log_key) + ENVELOPE_BYTES for evaluated in group
    )
    if size > shard.limits.record_bytes_max:
        raise invalid(
            f"The size of the atomic group exceeds the limit, limit size: "
            f"{shard.limits.record_bytes_max}, data size: {size}."
        )
    last = len(group) - 1
    marked = [
        evaluated._replace(group=record.FIRST * (at == 0) | record.LAST * (at == last))
        for at, evaluated in enumerate(group)
    ]
    shard.take_group(marked)
    return marked


def _check_bound(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise invalid(
            f"The {what} of the transaction exceeds the limit, limit: {limit}, value: {count}."
        )
