"""Serves one shard: accepts changes, appends them as batches, and applies valid ones.

Changes are evaluated on arrival and wait in a queue; plain writes that arrive in one turn of
the event loop are evaluated together. While one batch is on its way to the log, the next one
gathers (group commit). A client gets its answer only after the log
acknowledged the record at the offset that it names, and the rows have it. So a later read
sees it.

One task runs ``run`` and owns the order of appends. ``submit`` may be called from any
request on the same event loop. A shard that cannot know its own state stops
(``failed``). Its slot replays it, or keeps it closed if its log lost entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rowtide.core.records import record
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import AtomicBatch
from rowtide.core.shard.mark import entry_digest
from rowtide.core.shard.plain_batch import (
    PlainBatch,
    PlainWrite,
    evaluate_together,
    is_independent,
)
from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import options_body
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.shard.transaction_id import TransactionId, commit_key, session_missing
from rowtide.core.shard.unique_put import UniquePut
from rowtide.core.values import key
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.appender import Appender, BatchRefused, LogShortened
from rowtide.stream.shard.flush_ledger import FlushLedger
from rowtide.stream.shard.log_fold import LogFold
from rowtide.stream.shard.log_readers import LogReaders
from rowtide.stream.shard.open_transactions import Nothing, OpenTransaction, OpenTransactions
from rowtide.stream.shard.owner_life import OwnerLife
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore, StoreFailed
from rowtide.stream.shard.unproven import Unproven
from rowtide.stream.shard.waiting import (
    NOTHING,
    ChangeWaiter,
    GroupWaiter,
    HiddenWaiter,
    PlainWaiter,
    Reply,
    Tell,
    Waiter,
    answer,
    fail,
)
from rowtide.stream.shard.write_queue import WriteQueue

__all__ = ["ShardOwner", "ShardSettings"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """How a shard groups and bounds its work.

    A larger batch costs memory and the latency of its first change; too small a queue
    rejects bursts (OTSServerBusy). ``write_s_max`` is the longest wait of a client. Then
    the answer is OTSTimeout, also for a change that was not sent yet: either may still be
    applied. If the log has rejected every append for half of that time, all waiting changes
    fail with OTSPartitionUnavailable. Open transactions cost memory: their number, and the
    bytes of rows that they wrote, are bounded per shard. Beyond either bound the answer is
    OTSServerBusy.
    """

    batch_records_max: int = 2000
    batch_bytes_max: int = 1024 * 1024
    waiting_max: int = 20_000
    write_s_max: float = 10.0
    transactions_max: int = 1000
    transactions_bytes_max: int = 64 * 1024 * 1024


_new = tuple.__new__


class ShardOwner:
    """The owner's side of one shard. ``clock_us`` gives Unix microseconds.

    ``steady_s`` measures the ages of transactions; by default it is the event loop's
    clock.
    """

    def __init__(
        self,
        shard: Shard,
        log: Log,
        rows: RowStore,
        *,
        clock_us: Callable[[], int],
        lease: ReadLease,
        settings: ShardSettings,
        steady_s: Callable[[], float] | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts or Counts()
        self.shard = shard
        self.rows = rows
        self.fold = LogFold(shard, rows)
        self.appender = Appender(log, self._noop, counts=self._counts)
        self._clock_us = clock_us
        self._lease = lease
        self._settings = settings
        self._life = OwnerLife()
        self._queue = WriteQueue(
            self._evaluate,
            self._evaluate_together,
            records_max=settings.batch_records_max,
            bytes_max=settings.batch_bytes_max,
        )
        self._unproven = Unproven(lease)
        self._loop = asyncio.get_running_loop()
        self.transactions = OpenTransactions(
            shard,
            clock_s=steady_s or self._loop.time,
            count_max=settings.transactions_max,
            bytes_max=settings.transactions_bytes_max,
        )

    @property
    def log(self) -> Log:
        """The shard's log."""
        return self.appender.log

    @property
    def ledger(self) -> FlushLedger:
        """The chunks that the next flush must write."""
        return self.fold.ledger

    @property
    def readers(self) -> LogReaders:
        """State that the readers of the log share."""
        return self.fold.readers

    @property
    def is_open(self) -> bool:
        """True if changes are accepted."""
        return self._life.is_open

    @property
    def is_closed(self) -> bool:
        """True if ``run`` has ended."""
        return self._life.is_closed

    @property
    def is_retired(self) -> bool:
        """True if the log has ended with our own seal."""
        return self._life.is_retired

    @property
    def failed(self) -> Exception | None:
        """The error that ended ``run``; None if there was none."""
        return self._life.failure

    @property
    def end(self) -> int:
        """The log's next offset, as acknowledged and applied."""
        return self.shard.state.applied + 1

    @property
    def has_unflushed(self) -> bool:
        """True if the changelog may lack entries of the shard."""
        return bool(self.ledger.keys) or self.rows.find_flushed(self.shard.shard_id) < self.end - 1

    @property
    def pending(self) -> int:
        """The number of accepted changes that are not applied yet."""
        return self._queue.count

    @property
    def has_barrier(self) -> bool:
        """True if the outcome of an accepted hidden record is not known yet."""
        return self._queue.has_barrier

    def require_readable(self) -> None:
        """Raise ``Unavailable`` unless a strong read may be served now."""
        self._life.require_open()
        self._lease.require()

    def submit(self, change: ChangeRequest, tell: Tell) -> None:
        """Evaluate ``change`` now; call ``tell`` once its record is valid and applied.

        After ``write_s_max`` ``tell`` gets ``OutcomeUnknown`` instead, and the change may
        still be applied. Raises ``Unavailable`` if the shard is not open, its queue is full
        or an open transaction holds the partition key; then nothing has happened and
        ``tell`` is not called.
        """
        # Checks are inlined here, because this is the most frequent call.
        queue = self._queue
        if not self._life.is_open or len(queue.waiting) >= self._settings.waiting_max:
            self._life.require_open()
            self._require_room()
        if self.transactions.locks:
            self.transactions.require_free(change.key[0][1])
        queue.add(ChangeWaiter(tell, self._loop.time(), change))

    def submit_plain(self, write: PlainWrite, tell: Tell) -> None:
        """Like ``submit``, but evaluate together with other plain writes of this turn."""
        queue = self._queue
        if not self._life.is_open or len(queue.waiting) >= self._settings.waiting_max:
            self._life.require_open()
            self._require_room()
        if self.transactions.locks:
            self.transactions.require_free(key.decode(write.row[3])[0])
        if queue.add_plain(PlainWaiter(tell, self._loop.time(), write)):
            self._loop.call_soon(queue.evaluate_arrived)

    def submit_group(
        self, group: AtomicBatch | PlainBatch | SourceBatch | UniquePut, tell: Tell
    ) -> None:
        """Evaluate changes that are logged together; see ``submit``.

        ``tell`` may get ``OutcomeUnknown`` before it gets the outcome.
        """
        self._life.require_open()
        self._require_room()
        if self.transactions.locks:
            for change in group.changes:
                self.transactions.require_free(change.key[0][1])
        self._queue.add(GroupWaiter(tell, self._loop.time(), group))

    # Transactions.

    def begin(self, transaction_id: TransactionId, partition_key: bytes, tell: Tell) -> None:
        """Open a transaction; call ``tell`` once all earlier writes to its rows are valid.

        From now on others' writes to the partition key are rejected, so nothing that the
        transaction reads can be undone later. Raises ``Unavailable``.
        """
        self._life.require_open()
        self._require_room()
        held = self.transactions.begin(transaction_id, partition_key)
        if self._lease.holds() and not self._queue.may_write(partition_key):
            tell(NOTHING)
            return
        report = partial(self._report_begin, held, tell)
        self._queue.add(GroupWaiter(report, self._loop.time(), Nothing()))

    def apply(self, transaction_id: TransactionId, change: ChangeRequest) -> Outcome:
        """Evaluate a change within a transaction. Raises if it is rejected."""
        self.require_readable()
        return self.transactions.apply(transaction_id, change, self._clock_us())

    def commit(self, transaction_id: TransactionId, tell: Tell) -> None:
        """Log a transaction as one group; call ``tell`` once it is valid and applied.

        A repeated commit succeeds while the first one is remembered. Raises
        OTSSessionNotExist, ``Unavailable``.
        """
        self._life.require_open()
        held = self.transactions.get(transaction_id)
        if held is None:
            self.require_readable()
            if self.rows.get(commit_key(transaction_id)) is None:
                raise session_missing()
            tell(NOTHING)
        elif held.is_committing:
            held.await_commit(tell)
        else:
            self._require_room()
            report = partial(self._report_commit, held)
            self._queue.add(GroupWaiter(report, self._loop.time(), held.transaction))
            held.await_commit(tell)  # Only now: if a row cannot be read, nothing is queued.

    def abort(self, transaction_id: TransactionId) -> None:
        """Drop a transaction. Raises OTSSessionNotExist, ``Unavailable``."""
        self._life.require_open()
        self.transactions.end(self.transactions.require_idle(transaction_id))

    def _report_begin(
        self, held: OpenTransaction, tell: Tell, outcome: Outcome | StoreError
    ) -> None:
        if isinstance(outcome, StoreError):
            self.transactions.end(held)
        tell(outcome)

    def _report_commit(self, held: OpenTransaction, outcome: Outcome | StoreError) -> None:
        """Report the outcome of a commit. The partition key is held until that is known."""
        held.tell(outcome)
        if isinstance(outcome, Unavailable) and self._life.is_open:
            held.is_committing = False  # Nothing was written: it may be committed again.
        elif not isinstance(outcome, OutcomeUnknown):
            self.transactions.end(held)

    def _require_room(self) -> None:
        if len(self._queue.waiting) >= self._settings.waiting_max:
            raise Unavailable("Server is busy.", "OTSServerBusy")

    def require_followable(self) -> None:
        """Raise ``Unavailable`` unless the log may be read now. It may be read after its
        end too.
        """
        if self.shard.state.seal is None:
            self._life.require_open()
        self._lease.require()

    def submit_hidden(self, body: record.Body) -> asyncio.Future[Outcome]:
        """Append a hidden record (options, a slice of an index) after all submitted changes.

        It is a barrier from now on: later changes are evaluated after it is applied. The
        future is done once the record is valid and applied.
        """
        self._life.require_open()
        return self._submit_barrier(body)

    def _submit_barrier(self, body: record.Body) -> asyncio.Future[Outcome]:
        reply = Reply(self._loop)
        self._queue.add(HiddenWaiter(reply, self._loop.time(), body))
        return reply.future

    async def seal(self, plan: str) -> Sealed:
        """Answer all accepted changes, end the log and let ``run`` end; return the log's end.

        Reads stop before the seal is sent, because another worker may take the keys over.
        Raises ``Unavailable`` and ``OutcomeUnknown``; then call it again.
        """
        await self.drain()
        while (seal := self.shard.state.seal) is None:
            if self._life.is_closed:
                raise Unavailable("The partition is not available.")
            await self._submit_barrier(record.Seal(plan))
        self._life.is_retired = True
        self._queue.wake()
        return seal

    def open(self) -> None:
        """Start to accept changes; the shard has been replayed to its log's end."""
        self._life.is_open = True

    async def run(self) -> None:
        """Append and apply until cancelled or failed. Raises only on cancellation."""
        async with asyncio.TaskGroup() as tasks:
            await self._run(tasks)

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        try:
            while True:
                await self._queue.work()
                while self._queue.waiting:
                    await self._commit(tasks)
                self._queue.rest()
                if self._life.is_retired:
                    return
        except (LogShortened, record.CorruptRecord, StoreError, StoreFailed) as error:
            fault = not isinstance(error, StoreError)  # Expected errors are logged in one line.
            logger.error("shard %s stopped: %s", self.shard.shard_id, error, exc_info=fault)
            self._life.failure = error
        finally:
            self._close()

    async def drain(self) -> None:
        """Stop accepting changes and wait until every accepted change has its answer."""
        self._life.is_open = False
        self.transactions.end_all()
        self._unproven.stop()  # The next owner may have the lease; we do not wait for it.
        await self._queue.idle()

    def expire(self) -> None:
        """Report an unknown outcome to clients that waited too long: the change may still
        be applied.
        """
        oldest_s = self._loop.time() - self._settings.write_s_max
        for waiting in self._queue:
            if waiting.since_s < oldest_s:
                waiting.expire()
        self._unproven.expire(oldest_s)
        self.transactions.sweep()

    # One batch.

    async def _commit(self, tasks: asyncio.TaskGroup) -> None:
        batch = self._queue.take()
        logged: list[Evaluated] = []
        for waiting in batch:
            if (evaluated := waiting.logged) is not None:
                logged.append(evaluated)
            elif waiting.many:
                logged += waiting.many
        if logged and not await self._append(logged):
            return
        self._queue.end_batch()
        answer(batch)
        # Only now: their inputs are valid, and the next batch does not wait for the
        # lease.
        if unproven := [waiting for waiting in batch if waiting.is_unproven]:
            self._unproven.add(unproven, tasks)
        self._queue.catch_up()

    async def _append(self, evaluated: Sequence[Evaluated]) -> bool:
        """Append the batch in flight; return True if it is valid and applied.

        Otherwise its clients are back at the head of the queue, or were rejected.
        """
        shard = self.shard
        at = shard.state.applied + 1
        pairs = shard.encode_records(evaluated, at)
        since_s = self._loop.time()
        while True:
            self._queue.is_sent = True
            try:
                appended = await self.appender.append(pairs, at)
                break
            except BatchRefused as error:
                self._refuse(error)
                return False
            except Unavailable as error:
                self._queue.is_sent = False
                if self._loop.time() - since_s > self._settings.write_s_max / 2:
                    self._refuse_all(error)
                    return False
                await asyncio.sleep(0.05)
        if appended.is_valid:
            self._apply(evaluated, pairs, at)
            self._count(pairs, self._loop.time() - since_s)
            answer(self._queue.in_flight)
        else:
            self._counts.appends_void += 1
            self._queue.take_back()
        if appended.entries or not appended.is_valid:
            shard.discard()
            self.fold.replay(appended.entries)
            self._queue.evaluate_anew()
        return appended.is_valid

    def _count(self, pairs: Sequence[tuple[bytes, bytes]], seconds: float) -> None:
        counts = self._counts
        counts.appends.add(seconds)
        counts.append_records += len(pairs)
        counts.append_bytes += sum([len(value) for _, value in pairs])

    def _refuse(self, error: BatchRefused) -> None:
        """Fail the change in flight: nothing of it was written. Retry several ones one by one.

        The cause of a batch's rejection, perhaps its size, may lie in one change or in
        none.
        """
        if not self._queue.take_back_one_by_one():
            [refused] = self._queue.in_flight
            self._queue.end_batch()
            if refused.is_hidden:
                fail(refused, Unavailable(error.message))  # Our own caller retries.
            else:
                logger.warning("shard %s: change rejected: %s", self.shard.shard_id, error)
                fail(refused, error)
        self.shard.discard()
        self._queue.evaluate_anew()

    def _refuse_all(self, error: Unavailable) -> None:
        """Fail all waiting changes: none of them was written."""
        logger.warning("shard %s: all waiting changes failed: %s", self.shard.shard_id, error)
        refused = self._queue.take_all()
        self.shard.discard()
        for waiting in refused:
            fail(waiting, Unavailable())

    def _apply(
        self, evaluated: Sequence[Evaluated], pairs: Sequence[tuple[bytes, bytes]], at: int
    ) -> None:
        writes = self.shard.confirm(evaluated, at)
        self.shard.state.entry = entry_digest(pairs[-1][1])
        self.fold.write(writes)
        self.readers.add_applied([_new(Entry, (at + i, k, v)) for i, (k, v) in enumerate(pairs)])
        self.readers.wake()

    # One change.

    def _evaluate(self, waiting: Waiter) -> None:
        now_us = self._clock_us()
        try:
            if isinstance(waiting, HiddenWaiter) and self._is_held(waiting.body):
                waiting.evaluated = Evaluated(NOTHING, 0)
            else:
                waiting.evaluate(self.shard, now_us)
        except (Rejected, Unavailable) as error:
            waiting.error = error
        if waiting.is_hidden:
            return
        # A change without a record is answered from its inputs: it needs the lease, like
        # a read.
        waiting.is_unproven = not waiting.has_records and not self._lease.holds()

    def _evaluate_together(self, waiters: Sequence[PlainWaiter]) -> None:
        """Evaluate plain writes in order. Those whose rows cannot be read fail."""
        shard, writes = self.shard, [waiting.write for waiting in waiters]
        if len(writes) > 1 and not is_independent(shard, [write.row for write in writes]):
            for waiting in waiters:
                self._evaluate_together((waiting,))
            return
        try:
            if len(writes) > 1:
                results = evaluate_together(shard, writes, self._clock_us())
                for waiting, result in zip(waiters, results, strict=True):
                    waiting.take_result(result)
                    waiting.is_unproven = not waiting.has_records and not self._lease.holds()
            else:
                self._evaluate(waiters[0])
        except Exception as error:  # noqa: BLE001 - Logged; clients get OTSInternalServerError.
            self._fail_unevaluated(waiters, error)

    def _fail_unevaluated(self, waiters: Sequence[PlainWaiter], error: Exception) -> None:
        foreseen = isinstance(error, StoreFailed)
        name, count = self.shard.shard_id, len(waiters)
        logger.error(
            "shard %s: cannot evaluate %d writes: %s",
            *(name, count, error),
            exc_info=None if foreseen else error,
        )
        for waiting in waiters:
            waiting.evaluated = None
            waiting.error = StoreError("OTSInternalServerError", "Internal server error.")

    def _is_held(self, body: record.Body) -> bool:
        """True if a record would reclaim rows of an open transaction, which must not happen.

        The transaction's evaluated rows are in chunks with the same borders as those
        below.
        """
        return isinstance(body, record.Reclaim) and self.transactions.is_held(body.first, body.last)

    def _noop(self, at: int) -> tuple[bytes, bytes]:
        shard = self.shard
        # A log begins with its table's options: a rebuild folds the later entries under
        # them.
        body = record.NoOp() if at else options_body(shard.table)
        return b"", shard.encode_record(shard.control(body, self._clock_us()), at)

    def _close(self) -> None:
        """Answer all waiting changes: a sent one is unknown, an unsent one unavailable."""
        self._life.close()
        self.transactions.end_all()
        self._unproven.stop()
        queue = self._queue
        for waiting in queue.in_flight:
            fail(
                waiting,
                OutcomeUnknown() if queue.is_sent and waiting.has_records else Unavailable(),
            )
        for waiting in queue.waiting:
            fail(waiting, Unavailable())
        queue.clear()
        self.readers.wake()  # The shard continues elsewhere: readers must ask again.
