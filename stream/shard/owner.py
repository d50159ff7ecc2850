"""Serves one shard: takes changes in, appends them as batches, applies what stands.

Changes are evaluated as they arrive and wait in ``_waiting``; while one batch is on its way to the
log the next one gathers (group commit). An answer is given only after the log acknowledged the
record at the offset it names and the rows hold it, so a later read sees it.

One task runs ``run`` and owns the order of appends; ``submit`` may be called from any request on
the same event loop. A shard that can't know its own state closes (``failed``); its slot replays it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from rowtide.core.records import record
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import AtomicBatch
from rowtide.core.shard.mark import entry_digest
from rowtide.core.shard.plain_batch import PlainBatch
from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import options_body
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.shard.transaction_id import TransactionId, commit_key, session_missing
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.appender import Appender, BatchRefused, LogShortened
from rowtide.stream.shard.flush_ledger import FlushLedger
from rowtide.stream.shard.log_readers import LogReaders
from rowtide.stream.shard.open_transactions import Nothing, OpenTransaction, OpenTransactions
from rowtide.stream.shard.replay import Range, replay, take
from rowtide.stream.shard.row_store import RowStore, StoreFailed
from rowtide.stream.shard.unproven import Unproven
from rowtide.stream.shard.waiting import (
    NOTHING,
    ChangeWaiter,
    GroupWaiter,
    HiddenWaiter,
    Reply,
    Tell,
    Waiter,
    answer,
    fail,
)

__all__ = ["ShardOwner", "ShardSettings"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """How a shard groups and bounds its work.

    A larger batch costs memory and the latency of its first change; too small a queue refuses
    bursts (OTSServerBusy). ``write_s_max`` is how long a client waits at most: then the answer is
    OTSTimeout where the record may be in the log, OTSPartitionUnavailable where it is not.
    Open transactions cost memory: their number, and the bytes of rows they wrote, are bounded per
    shard; beyond either the answer is OTSServerBusy.
    """

    batch_records_max: int = 2000
    batch_bytes_max: int = 1024 * 1024
    waiting_max: int = 20_000
    write_s_max: float = 10.0
    transactions_max: int = 1000
    transactions_bytes_max: int = 64 * 1024 * 1024


WriteObserver = Callable[[Writes], None]

_new = tuple.__new__


class ShardOwner:
    """The owner's side of one shard. ``clock_us`` gives Unix microseconds.

    ``steady_s`` is what lives of transactions are measured by, the event loop's clock without.
    """

    failed: Exception | None = None
    closed = False
    retired = False

    def __init__(
        self,
        shard: Shard,
        log: Log,
        rows: RowStore,
        *,
        clock_us: Callable[[], int],
        readable: Callable[[], bool],
        settings: ShardSettings,
        steady_s: Callable[[], float] | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._counts = counts or Counts()
        self.shard = shard
        self.log = log
        self.rows = rows
        self.readers = LogReaders()
        self.appender = Appender(log, self._noop, counts=self._counts)
        self.ledger = FlushLedger(shard)
        self.others: Callable[[], Sequence[Range]] = tuple
        """Keys that are another shard's here by now: what the log did to them is passed over."""
        self.index_known: Callable[[int], bool] = lambda _: False
        """Whether there may be an index, by its number, that ``shard`` does not have."""
        self.unreadable: Callable[[], Unavailable] = Unavailable
        """Returns the failure of a read, or of a refusal, without a lease that holds."""
        self._write_observers: list[WriteObserver] = []
        self._clock_us = clock_us
        self._readable = readable
        self._settings = settings
        self._waiting: deque[Waiter] = deque()
        self._in_flight: list[Waiter] = []
        self._sent = False
        """Whether anything of the batch in flight may have reached the log."""
        self._unproven = Unproven(readable, lambda: self.unreadable())
        self._barriers = 0
        self._behind = False
        self._alone = 0
        """So many at the queue's head go alone, each a batch: as one they were refused."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = False
        self._loop = asyncio.get_running_loop()
        self.transactions = OpenTransactions(
            shard,
            clock_s=steady_s or self._loop.time,
            count_max=settings.transactions_max,
            bytes_max=settings.transactions_bytes_max,
        )
        self._locks = self.transactions.locks

    @property
    def end(self) -> int:
        """Return the log's next offset as of what is acknowledged and applied."""
        return self.shard.state.applied + 1

    @property
    def unflushed(self) -> bool:
        """Whether the changelog may lack something of the shard."""
        return bool(self.ledger.keys) or self.rows.flushed(self.shard.shard_id) < self.end - 1

    @property
    def pending(self) -> int:
        """Return how many changes were taken that are not applied yet."""
        return len(self._waiting) + len(self._in_flight)

    @property
    def awaits_hidden(self) -> bool:
        """Whether a hidden record was taken of which it is not known what becomes of it."""
        return self._barriers > 0

    def require_readable(self) -> None:
        """Raise ``Unavailable`` unless a strong read may be served now."""
        self._require_open()
        if not self._readable():
            raise self.unreadable()

    def submit(self, change: ChangeRequest, tell: Tell) -> None:
        """Evaluate ``change`` now; ``tell`` is called when its record stands and is applied.

        Raises ``Unavailable`` where the shard is not open, its queue is full or an open transaction
        holds the partition key; then nothing has happened and nobody is told.
        """
        # Written out: the hottest call there is.
        if not self._open or len(self._waiting) >= self._settings.waiting_max:
            self._require_open()
            self._require_room()
        if self._locks:
            self.transactions.require_free(change.key[0][1])
        self._enqueue(ChangeWaiter(tell, self._loop.time(), change))

    def submit_group(self, group: AtomicBatch | PlainBatch | SourceBatch, tell: Tell) -> None:
        """Evaluate changes that are logged together; see ``submit``.

        ``tell`` may hear ``OutcomeUnknown`` before it hears what became of them.
        """
        self._require_open()
        self._require_room()
        if self._locks:
            for change in group.changes:
                self.transactions.require_free(change.key[0][1])
        self._enqueue(GroupWaiter(tell, self._loop.time(), group))

    # Transactions.

    def begin(self, transaction_id: TransactionId, partition_key: bytes, tell: Tell) -> None:
        """Open a transaction; ``tell`` is called when all that was written before it stands.

        From now on others' writes to the partition key are refused, so nothing that the transaction
        reads can still turn out never to have been. Raises ``Unavailable``.
        """
        self._require_open()
        self._require_room()
        held = self.transactions.begin(transaction_id, partition_key)
        told = partial(self._begun, held, tell)
        self._enqueue(GroupWaiter(told, self._loop.time(), Nothing()))

    def apply(self, transaction_id: TransactionId, change: ChangeRequest) -> Outcome:
        """Decide a change within a transaction. Raises what refuses it."""
        self.require_readable()
        return self.transactions.apply(transaction_id, change, self._clock_us())

    def commit(self, transaction_id: TransactionId, tell: Tell) -> None:
        """Log a transaction as one group; ``tell`` is called when it stands and is applied.

        Repeated, it succeeds as long as the commit is remembered. Raises OTSSessionNotExist,
        ``Unavailable``.
        """
        self._require_open()
        held = self.transactions.get(transaction_id)
        if held is None:
            self.require_readable()
            if self.rows.get(commit_key(transaction_id)) is None:
                raise session_missing()
            tell(NOTHING)
        elif held.committing is not None:
            held.committing.append(tell)
        else:
            self._require_room()
            told = partial(self._committed, held)
            self._enqueue(GroupWaiter(told, self._loop.time(), held.transaction))
            held.committing = [tell]  # Only now: where a row can't be read nothing is queued.

    def abort(self, transaction_id: TransactionId) -> None:
        """Forget a transaction. Raises OTSSessionNotExist, ``Unavailable``."""
        self._require_open()
        self.transactions.end(self.transactions.idle(transaction_id))

    def _begun(self, held: OpenTransaction, tell: Tell, told: Outcome | StoreError) -> None:
        if isinstance(told, StoreError):
            self.transactions.end(held)
        tell(told)

    def _committed(self, held: OpenTransaction, told: Outcome | StoreError) -> None:
        """Pass on what became of a commit. The partition key is held until that is known."""
        held.tell(told)
        if isinstance(told, Unavailable) and self._open:
            held.committing = None  # Nothing was written: it may be committed again.
        elif not isinstance(told, OutcomeUnknown):
            self.transactions.end(held)

    def _require_open(self) -> None:
        if not self._open:
            raise Unavailable

    def _require_room(self) -> None:
        if len(self._waiting) >= self._settings.waiting_max:
            raise Unavailable("Server is busy.", "OTSServerBusy")

    def require_followable(self) -> None:
        """Raise ``Unavailable`` unless the log may be read now, which it may after its end too."""
        if self.shard.state.seal is None:
            self._require_open()
        if not self._readable():
            raise self.unreadable()

    def submit_hidden(self, body: record.Body) -> asyncio.Future[Outcome]:
        """Append a hidden record (options, a slice of an index) after what was submitted so far.

        It is a barrier from now on: what is submitted later is evaluated under what it brings. The
        future is done when the record stands and is applied.
        """
        self._require_open()
        return self._submit_barrier(body)

    def _submit_barrier(self, body: record.Body) -> asyncio.Future[Outcome]:
        reply = Reply(self._loop)
        self._enqueue(HiddenWaiter(reply, self._loop.time(), body))
        self._barriers += 1
        return reply.future

    async def seal(self, plan: str) -> Sealed:
        """Answer what was taken, end the log and let ``run`` end; return where the log ended.

        Reads stop before the seal is sent: who takes the keys over may be another worker. Raises
        ``Unavailable`` and ``OutcomeUnknown``; then it is to be called again.
        """
        await self.drain()
        while (seal := self.shard.state.seal) is None:
            if self.closed:
                raise Unavailable("The partition is not available.")
            await self._submit_barrier(record.Seal(plan))
        self.retired = True
        self._wake.set()
        return seal

    def open(self) -> None:
        """Start to take changes; the shard has been replayed to its log's end."""
        self._open = True

    async def run(self) -> None:
        """Append and apply until cancelled or failed. Never raises but on cancellation."""
        async with asyncio.TaskGroup() as tasks:
            await self._run(tasks)

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._commit(tasks)
                self._idle.set()
                if self.retired:
                    return
        except (LogShortened, record.CorruptRecord, StoreError, StoreFailed) as error:
            fault = not isinstance(error, StoreError)  # What was foreseen is told in a line.
            logger.error("shard %s closes: %s", self.shard.shard_id, error, exc_info=fault)
            self.failed = error
        finally:
            self._close()

    async def drain(self) -> None:
        """Stop taking changes and wait until every change taken has its answer."""
        self._open = False
        self.transactions.end_all()
        self._unproven.stop()  # Whoever takes over may have the lease; we do not wait for it.
        await self._idle.wait()

    def expire(self) -> None:
        """Tell clients who waited too long that the outcome is unknown: it may still come."""
        oldest_s = self._loop.time() - self._settings.write_s_max
        for waiting in (*self._in_flight, *self._waiting):
            if waiting.since_s < oldest_s:
                waiting.expire()
        self._unproven.expire(oldest_s)
        self.transactions.sweep()

    # One batch.

    async def _commit(self, tasks: asyncio.TaskGroup) -> None:
        batch = self._in_flight = self._take()
        self._sent = False
        logged: list[Evaluated] = []
        for waiting in batch:
            if (evaluated := waiting.logged) is not None:
                logged.append(evaluated)
            elif waiting.many:
                logged += waiting.many
        if logged and not await self._append(logged):
            return
        self._in_flight = []
        self._barriers -= sum(w.is_hidden for w in batch)
        answer(batch)
        # Only now: what they saw stands, and the next batch does not wait for the lease.
        if unproven := [waiting for waiting in batch if waiting.unproven]:
            self._unproven.add(unproven, tasks)
        if self._behind:
            self._catch_up()

    def _take(self) -> list[Waiter]:
        """Take the next batch off the queue; a hidden record goes alone, a group goes whole."""
        settings, waiting = self._settings, self._waiting
        if self._alone:
            self._alone -= 1
            return [waiting.popleft()]
        batch: list[Waiter] = []
        size = count = 0
        while waiting and len(batch) + count < settings.batch_records_max:
            head = waiting[0]
            if batch and head.is_hidden:
                break
            if (evaluated := head.logged) is not None and evaluated.body is not None:
                size += len(evaluated.body)
                if batch and size > settings.batch_bytes_max:
                    break
            elif head.many:
                size += sum(len(part.body or b"") for part in head.many)
                count += len(head.many)
                if batch and (
                    size > settings.batch_bytes_max or count > settings.batch_records_max
                ):
                    break
            batch.append(waiting.popleft())
            if head.is_hidden:
                break
        return batch

    async def _append(self, evaluated: Sequence[Evaluated]) -> bool:
        """Append the batch in flight; return whether it stands and is applied.

        Where it does not, its clients are back at the head of the queue, or were refused.
        """
        shard = self.shard
        at = shard.state.applied + 1
        pairs = [(e.log_key, shard.encoded(e, at + i)) for i, e in enumerate(evaluated)]
        since_s = self._loop.time()
        while True:
            self._sent = True
            try:
                told = await self.appender.append(pairs, at)
                break
            except BatchRefused as error:
                self._refuse(error)
                return False
            except Unavailable as error:
                self._sent = False
                if self._loop.time() - since_s > self._settings.write_s_max / 2:
                    self._refuse_all(error)
                    return False
                await asyncio.sleep(0.05)
        if told.stands:
            self._apply(evaluated, pairs, at)
            self._count(pairs, self._loop.time() - since_s)
            answer(self._in_flight)
        else:
            self._counts.appends_void += 1
            self._waiting.extendleft(reversed(self._in_flight))
            self._in_flight = []
        if told.entries or not told.stands:
            shard.discard()
            self.replay(told.entries)
            self._evaluate_anew()
        return told.stands

    def _evaluate_anew(self) -> None:
        """Evaluate who waits: what they were evaluated upon is not as it was."""
        for waiting in self._waiting:
            waiting.evaluated = waiting.error = None
            waiting.many = ()
        self._catch_up()

    def _count(self, pairs: Sequence[tuple[bytes, bytes]], seconds: float) -> None:
        counts = self._counts
        counts.appends.add(seconds)
        counts.append_records += len(pairs)
        counts.append_bytes += sum([len(value) for _, value in pairs])

    def _refuse(self, error: BatchRefused) -> None:
        """Fail the one in flight, of which nothing was written; several are tried one by one.

        What a batch is refused for, its size perhaps, may be the fault of one, or of none.
        """
        refused, self._in_flight = self._in_flight, []
        if len(refused) > 1:
            self._alone = len(refused)
            self._waiting.extendleft(reversed(refused))
        elif refused[0].is_hidden:
            self._barriers -= 1
            fail(refused[0], Unavailable(error.message))  # Whoever of us asked asks again.
        else:
            logger.warning("shard %s refuses a change: %s", self.shard.shard_id, error)
            fail(refused[0], error)
        self.shard.discard()
        self._evaluate_anew()

    def _refuse_all(self, error: Unavailable) -> None:
        """Fail everyone who waits: nothing of theirs was written."""
        logger.warning("shard %s refuses its queue: %s", self.shard.shard_id, error)
        refused = [*self._in_flight, *self._waiting]
        self._in_flight = []
        self._waiting.clear()
        self._barriers = self._alone = 0
        self._behind = False
        self.shard.discard()
        for waiting in refused:
            fail(waiting, Unavailable())

    def _apply(
        self, evaluated: Sequence[Evaluated], pairs: Sequence[tuple[bytes, bytes]], at: int
    ) -> None:
        writes = self.shard.confirm(evaluated, at)
        self.shard.state.entry = entry_digest(pairs[-1][1])
        self._write(writes)
        self.readers.add_applied([_new(Entry, (at + i, k, v)) for i, (k, v) in enumerate(pairs)])
        self.readers.wake()

    def replay(self, entries: Sequence[Entry]) -> None:
        """Fold entries of the log into the rows, in one write.

        Raises ``Unavailable`` where one of them is a later owner's: this one steps down. Or where
        one names an index that was made since the table was looked up: whoever stood still, and was
        succeeded, would pass its rows over. Nothing is written then, and the shard not used again.
        """
        shard = self.shard
        shard.indexes.passed_over.clear()
        writes, claim = replay(shard, entries)
        for number in filter(self.index_known, shard.indexes.passed_over):
            raise Unavailable(f"the log of {shard.shard_id} tells of index {number}, made since")
        self.readers.add_applied(entries)
        self._write(writes)
        if claim > shard.claim >= 0:
            raise Unavailable(f"shard {shard.shard_id} has a later owner; this one steps down")

    def recover(self, entries: Sequence[Entry], *, never: bool) -> None:
        """Fold entries of which the rows may hold some already, and the changelog lack them.

        Those up to the mark are only noted. Where the changelog ``never`` had anything of the shard
        all are: the rows may hold them without a mark. ``find_unflushed`` ends it.
        """
        applied = self.shard.state.applied
        self.ledger.note(e for e in entries if never or e.offset <= applied)
        self.replay([e for e in entries if e.offset > applied])

    def find_unflushed(self) -> None:
        """Add the chunks that noted entries left to what the next flush writes."""
        self.ledger.find_noted(self.rows, self.others())

    def _write(self, writes: Writes) -> None:
        writes = take(self.shard, self.rows, writes, self.others())
        self.ledger.add_writes(writes)
        for observe in self._write_observers:
            observe(writes)

    def add_write_observer(self, observe: WriteObserver) -> None:
        """Call ``observe`` with everything that is written to the rows from now on."""
        self._write_observers.append(observe)

    def remove_write_observer(self, observe: WriteObserver) -> None:
        """Call ``observe`` no more, if it ever was called."""
        self._write_observers = [o for o in self._write_observers if o != observe]

    # One change.

    def _enqueue(self, waiting: Waiter) -> None:
        """Queue in order. Behind a hidden record evaluation waits until that one stands."""
        if self._barriers or self._behind:
            self._behind = True
        else:
            self._evaluate(waiting)
        self._waiting.append(waiting)
        self._idle.clear()
        self._wake.set()

    def _catch_up(self) -> None:
        """Evaluate, in order, what has not been; stop behind the first hidden record."""
        self._behind = False
        for waiting in self._waiting:
            if self._behind:
                return
            if waiting.evaluated is None and waiting.error is None:
                self._evaluate(waiting)
            self._behind = waiting.is_hidden
        self._behind = False

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
        # What changes nothing answers from what it saw: that needs the lease, as a read does.
        waiting.unproven = not waiting.writes and not self._readable()

    def _is_held(self, body: record.Body) -> bool:
        """True if a record would reclaim rows of an open transaction, which is left undone.

        What that has decided stands in chunks that begin and end where those below them do.
        """
        return isinstance(body, record.Reclaim) and self.transactions.holds(body.first, body.last)

    def _noop(self, at: int) -> tuple[bytes, bytes]:
        shard = self.shard
        # A log begins with its table's options: a rebuild folds what follows under them.
        body = record.NoOp() if at else options_body(shard.table)
        return b"", shard.encoded(shard.control(body, self._clock_us()), at)

    def _close(self) -> None:
        """Answer everyone who still waits: sent is unknown, not sent is unavailable."""
        self._open = False
        self.closed = True
        self.transactions.end_all()
        self._unproven.stop()
        for waiting in self._in_flight:
            fail(waiting, OutcomeUnknown() if self._sent and waiting.writes else Unavailable())
        for waiting in self._waiting:
            fail(waiting, Unavailable())
        self._in_flight = []
        self._waiting.clear()
        self._idle.set()
        self.readers.wake()  # The shard goes on elsewhere: readers must ask again.
