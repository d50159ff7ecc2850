"""Clients that write rows in local transactions, and ask again until they know the outcome.

A transaction changes one row several times, each time with its own mark. So no client
sees any mark but the last, unless something takes a transaction apart.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import IGNORE, PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.shard.transaction_id import session_missing
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from tests.simulation.clients import Attempt, Clients, some_cells
from tests.simulation.requests import Message, Reply, Workers, ask, request_of, rows_of, wire_key
from tests.simulation.row_model import MARK
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import INDEXED, PLACES, Place

__all__ = ["Transactions"]

PAUSES_S = (0.0, 0.0, 0.01, 0.1, 0.5, 2.0)
COMMITS_MAX = 8
"""So often a client asks at most."""
REPEATED = 4
"""So often one asks again that was answered."""


@dataclass(slots=True)
class Transaction:
    """A client's writes in one: ``taken`` for certain, ``perhaps`` if unknown."""

    id: str
    place: Place
    begun: int
    """The stamp of the row's last change when the client learned that the transaction is open."""
    taken: list[Attempt] = field(default_factory=list)
    perhaps: list[Attempt] = field(default_factory=list)

    @property
    def marks(self) -> list[str]:
        """The marks of what was taken, in order."""
        return [attempt.mark for attempt in self.taken if attempt.mark is not None]


class Transactions:
    """All of them. ``tasks`` has the clients, which may call any of ``workers``."""

    def __init__(
        self, clients: Clients, tasks: asyncio.TaskGroup, chance: random.Random, workers: Workers
    ) -> None:
        self._clients = clients
        self._tasks = tasks
        self._chance = chance
        self._workers = workers
        self._running: list[asyncio.Task[None]] = []
        self._committed: list[Transaction] = []
        """Those of which a commit was asked."""
        self._acknowledged: list[Transaction] = []
        self._count = 0
        self._over = False

    def begin(self) -> None:
        """Let a client run one transaction, on some row of the table that allows them."""
        place = self._chance.choice([place for place in PLACES if place.table == INDEXED])
        self._running.append(self._tasks.create_task(self._run(place), name="transaction"))

    async def end(self) -> None:
        """Let no client ask for more; return when each knows what it will ever know."""
        self._over = True
        if self._running:
            await asyncio.wait(self._running)

    def check(self) -> None:
        """Accepted changes are whole, in one place of one log, or absent.

        No other change lies between them, nor after the changes that the client knew when
        it was open.
        """
        for transaction in self._committed:
            model = self._clients.model(transaction.place.table)
            stood = model.stood
            valid = [stood[mark] for mark in transaction.marks if mark in stood]
            assert len(valid) in (0, len(transaction.taken)), f"a half stands: {transaction}"
            if valid:
                assert len({one.shard_id for one in valid}) == 1, f"in two logs: {transaction}"
                apart = valid[-1].offset - valid[0].offset
                most = len(transaction.taken) + len(transaction.perhaps)
                assert apart < most, f"something stands between: {transaction}"
                if not transaction.perhaps:
                    last = model.before(transaction.place.name, valid[0].stamp)
                    assert last <= transaction.begun, f"others wrote meanwhile: {transaction}"

    async def _run(self, place: Place) -> None:
        start = pb.StartLocalTransactionRequest(
            table_name=place.table, key=wire_key(place.key[0][1])
        )
        reply = await self._ask("StartLocalTransaction", start)
        if not isinstance(reply, bytes):
            return
        answer = pb.StartLocalTransactionResponse.FromString(reply)
        begun = self._clients.model(place.table).last(place.name)
        transaction = Transaction(answer.transaction_id, place, begun)
        for _ in range(self._chance.randint(1, 3)):
            await self._pause()
            await self._write(transaction)
        if self._chance.random() < 0.5:
            await self._read(transaction)
        await self._pause()
        outcome: Outcome | Rejected | OutcomeUnknown = session_missing()
        ending = self._chance.choice(("commit", "commit", "commit", "commit", "abort", "forget"))
        if ending == "abort":
            await self._ask(
                "AbortTransaction", pb.AbortTransactionRequest(transaction_id=transaction.id)
            )
        elif ending == "commit" and not self._over:
            outcome = await self._commit(transaction)
        self._settle(transaction, outcome)
        if isinstance(outcome, Outcome):
            self._acknowledged.append(transaction)
            await self._repeat(transaction)

    async def _repeat(self, transaction: Transaction) -> None:
        """A commit may be asked again for ten minutes, wherever its shard went meanwhile."""
        request = pb.CommitTransactionRequest(transaction_id=transaction.id)
        for _ in range(REPEATED):
            await self._pause()
            if self._over:
                return
            reply = await self._ask("CommitTransaction", request)
            assert not isinstance(reply, Rejected), f"forgotten: {transaction}"

    async def check_remembered(self, worker: SimulatedWorker) -> None:
        """A worker that serves alone knows every commit."""
        for transaction in self._acknowledged:
            request = pb.CommitTransactionRequest(transaction_id=transaction.id)
            reply = await ask(self._clients, worker, "CommitTransaction", request)
            assert isinstance(reply, bytes), f"forgotten by {worker.address}: {transaction}"

    async def _commit(self, transaction: Transaction) -> Outcome | Rejected | OutcomeUnknown:
        """Ask until the outcome is known, or for long enough."""
        request = pb.CommitTransactionRequest(transaction_id=transaction.id)
        self._clients.hidden.update(variant.encode(mark) for mark in transaction.marks[:-1])
        self._committed.append(transaction)
        unknown = False
        for _ in range(COMMITS_MAX):
            reply = await self._ask("CommitTransaction", request)
            if isinstance(reply, bytes):
                return Outcome(b"", 0, 0)
            if isinstance(reply, Rejected):
                # Nothing was applied, says docs/guides/transactions.md, be it asked again.
                return reply
            unknown = unknown or isinstance(reply, OutcomeUnknown)
            if self._over:
                break
            await self._pause()
        # A commit that only ever got "unavailable" has applied nothing.
        return OutcomeUnknown() if unknown else session_missing()

    async def _write(self, transaction: Transaction) -> None:
        clients, chance, place = self._clients, self._chance, transaction.place
        self._count += 1
        mark, kind = f"t{self._count}", chance.choice((PUT, UPDATE, UPDATE))
        cells = [
            *some_cells(chance, updates=kind == UPDATE),
            put_cell(MARK, variant.encode(mark), None),
        ]
        low = clients.model(place.table).last(place.name)
        now_s = asyncio.get_running_loop().time()
        change = ChangeRequest(kind, place.key, cells, IGNORE)
        workers = self._workers()
        if self._over or not workers:
            return
        worker = chance.choice(workers)
        attempt = Attempt(place, mark, change, low, worker, now_s)
        operation, request = request_of(place, change, transaction.id)
        reply = await ask(clients, worker, operation, request)
        if isinstance(reply, bytes):
            transaction.taken.append(attempt)
        elif isinstance(reply, OutcomeUnknown):
            transaction.perhaps.append(attempt)

    async def _read(self, transaction: Transaction) -> None:
        """Within a transaction its own last change is there."""
        place = transaction.place
        request = pb.GetRowRequest(
            table_name=place.table,
            primary_key=wire_key(*(value for _, value in place.key)),
            max_versions=1,
            transaction_id=transaction.id,
        )
        reply = await self._ask("GetRow", request)
        if isinstance(reply, bytes) and transaction.taken and not transaction.perhaps:
            row = rows_of(pb.GetRowResponse.FromString(reply).row).get(place.name)
            assert row is not None, f"does not see its own row: {transaction}"
            seen = str(variant.decode(row[MARK]))
            # A source's rows have versions of their own, which may lie ahead.
            own = seen == transaction.marks[-1] or seen.startswith("m")
            assert own, f"sees {seen!r}: {transaction}"

    def _settle(
        self, transaction: Transaction, outcome: Outcome | Rejected | OutcomeUnknown
    ) -> None:
        """Note what the client knows of each change from now on."""
        now_s = asyncio.get_running_loop().time()
        unsure = outcome if isinstance(outcome, Rejected) else OutcomeUnknown()
        for attempts, reply in ((transaction.taken, outcome), (transaction.perhaps, unsure)):
            for attempt in attempts:
                attempt.result, attempt.result_s = reply, now_s
                self._clients.attempts.append(attempt)
                if isinstance(reply, Outcome) and attempt.mark is not None:
                    self._clients.acknowledge(attempt.place, attempt.mark)

    async def _ask(self, operation: str, request: Message) -> Reply:
        """Have any worker answer."""
        workers = self._workers()
        if not workers:
            await asyncio.sleep(1)
            return Unavailable()
        reply = await ask(self._clients, self._chance.choice(workers), operation, request)
        code = reply.code if isinstance(reply, StoreError) else "ok"
        self._clients.trace.add("transaction", f"{operation} {code}")
        return reply

    async def _pause(self) -> None:
        if not self._over:
            await asyncio.sleep(self._chance.choice(PAUSES_S))
