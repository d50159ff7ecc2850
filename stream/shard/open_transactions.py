"""The open local transactions of one shard, and the partition keys that they hold.

They live in the owner's memory and end with it. Until its commit a transaction only
ensures that no other client writes its partition key. Moments are seconds of ``clock_s``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rowtide.core.rows.chunk import row_end
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import Transaction, conflict
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.transaction_id import TransactionId, session_missing
from rowtide.core.values import key
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.core.values.limits import Limits

__all__ = ["Nothing", "OpenTransaction", "OpenTransactions"]

Tell = Callable[[Outcome | StoreError], None]


@dataclass(slots=True)
class OpenTransaction:
    """An open transaction. ``waiting`` has the callers that wait for its running commit."""

    transaction: Transaction
    is_committing: bool = False
    waiting: list[Tell] = field(default_factory=list)

    def await_commit(self, tell: Tell) -> None:
        """Call ``tell`` with the outcome of the running commit."""
        self.is_committing = True
        self.waiting.append(tell)

    def tell(self, outcome: Outcome | StoreError) -> None:
        """Report to all callers that wait for the commit; later ones get the next report."""
        waiting, self.waiting = self.waiting, []
        for tell in waiting:
            tell(outcome)


class Nothing:
    """A group without records: its answer comes once all earlier records are valid."""

    def evaluate(self, _shard: Shard, _now_us: int) -> list[Evaluated]:
        """Return no record."""
        return []


class OpenTransactions:
    """The open transactions. ``count_max`` bounds their number, ``bytes_max`` their memory."""

    def __init__(
        self,
        shard: Shard,
        *,
        clock_s: Callable[[], float],
        count_max: int,
        bytes_max: int,
    ) -> None:
        self.locks: dict[bytes, OpenTransaction] = {}
        """By the variant of the partition key."""
        self._shard = shard
        self._limits: Limits = shard.limits
        self._clock_s = clock_s
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._by_id: dict[TransactionId, OpenTransaction] = {}
        self._bytes = 0

    @property
    def count(self) -> int:
        """The number of open transactions."""
        return len(self._by_id)

    def require_free(self, partition_key: bytes) -> None:
        """Raise OTSRowOperationConflict if a transaction holds the partition key."""
        held = self.locks.get(partition_key)
        if held is None:
            return
        if self._is_live(held):
            raise conflict()
        self.end(held)

    def list_free_ranges(self, first: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """Return the ranges between two encoded keys whose rows no transaction holds."""
        self.sweep()
        left: list[tuple[bytes, bytes]] = []
        at = first
        for held in sorted(key.encode([partition_key]) for partition_key in self.locks):
            if at < held < last:
                left.append((at, held))
            at = max(at, row_end(held)) if held < last else at
        return [*left, (at, last)] if at <= last else left

    def is_held(self, first: bytes, last: bytes) -> bool:
        """True if a transaction holds rows between two encoded keys."""
        return self.list_free_ranges(first, last) != [(first, last)]

    def begin(self, transaction_id: TransactionId, partition_key: bytes) -> OpenTransaction:
        """Hold a partition key from now on. Raises OTSRowOperationConflict, OTSServerBusy."""
        self.require_free(partition_key)
        if len(self._by_id) >= self._count_max:
            self.sweep()
            if len(self._by_id) >= self._count_max:
                raise Unavailable("Server is busy.", "OTSServerBusy")
        expires_s = self._clock_s() + self._limits.transaction_s_max
        held = OpenTransaction(
            Transaction(transaction_id, partition_key, self._shard, expires_s=expires_s)
        )
        self._by_id[transaction_id] = self.locks[partition_key] = held
        return held

    def get(self, transaction_id: TransactionId) -> OpenTransaction | None:
        """Return an open transaction; None if it is unknown, finished or timed out."""
        held = self._by_id.get(transaction_id)
        if held is None or self._is_live(held):
            return held
        self.end(held)
        return None

    def require_idle(self, transaction_id: TransactionId) -> OpenTransaction:
        """Return an open transaction that is not about to be committed.

        Raises OTSSessionNotExist, and OTSRowOperationConflict while a commit runs.
        """
        held = self.get(transaction_id)
        if held is None:
            raise session_missing()
        if held.is_committing:
            raise conflict()
        return held

    def apply(self, transaction_id: TransactionId, change: ChangeRequest, now_us: int) -> Outcome:
        """Evaluate a change within a transaction. Raises if it is rejected."""
        with self._measure(transaction_id) as transaction:
            return transaction.apply(self._shard, change, now_us)

    @contextmanager
    def _measure(self, transaction_id: TransactionId) -> Iterator[Transaction]:
        """Count the memory that a transaction takes."""
        transaction = self.require_idle(transaction_id).transaction
        if self._bytes >= self._bytes_max:
            raise Unavailable("Server is busy.", "OTSServerBusy")
        before = transaction.held_bytes
        try:
            yield transaction
        finally:
            self._bytes += transaction.held_bytes - before

    def end(self, held: OpenTransaction) -> None:
        """Drop a transaction and release its partition key."""
        transaction = held.transaction
        if self._by_id.pop(transaction.id, None) is not None:
            del self.locks[transaction.partition_key]
            self._bytes -= transaction.held_bytes

    def sweep(self) -> None:
        """End the transactions that have timed out, except those about to be committed."""
        for held in [held for held in self._by_id.values() if not self._is_live(held)]:
            self.end(held)

    def end_all(self) -> None:
        """End every transaction that is not about to be committed."""
        for held in [held for held in self._by_id.values() if not held.is_committing]:
            self.end(held)

    def _is_live(self, held: OpenTransaction) -> bool:
        """True if a transaction has not timed out, or its commit runs."""
        return held.is_committing or self._clock_s() < held.transaction.expires_s
