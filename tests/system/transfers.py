"""Several clients that move amounts between rows of one partition key, each move a transaction.

A partition's rows always hold ``TOTAL`` together. Every move has a mark of its own, which stands in
each row that it writes, and remembers what it read. A commit without an answer is repeated until
it succeeds or is unknown to the server, so at the end everybody knows what became of each move.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.client.wire_row import Increment, Key, Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_write,
    get,
    get_range,
    put,
    rows,
    shown,
    update,
)
from tests.system.server import Server

__all__ = ["TABLE", "TOTAL", "Move", "Mover", "create_accounts"]

TABLE = "accounts"
PARTITIONS, ROWS, START = 3, 4, 100
TOTAL = ROWS * START
KNOCK_S = 0.02


@dataclass(slots=True)
class Move:
    """One move: what it read, as balances by row, and whether it stands (None: nobody knows)."""

    partition: str
    reads: dict[int, int] = field(default_factory=dict)
    stands: bool | None = None


def account(partition: str, number: object) -> Key:
    """Return the key of a row, or of an end of the partition."""
    return (("owner", partition), ("number", number))  # type: ignore[return-value]


def create_accounts(client: ProtocolClient) -> None:
    """Create the table and give every row its first balance."""
    client.create_table(
        TABLE,
        [KeyColumn("owner", STRING), KeyColumn("number", INTEGER)],
        stream=pb.StreamSpecification(enable_stream=True, expiration_time=24),
    )
    for partition in range(PARTITIONS):
        for number in range(ROWS):
            ask(client, put(TABLE, account(f"p{partition}", number), balance(START, "start")))


def balance(amount: int, mark: str) -> list[Put]:
    """Return a row's columns."""
    return [Put("by", mark), Put("v", amount)]


class Given(Exception):
    """The server does not know the transaction any more, or another one holds the key."""


class Mover(threading.Thread):
    """One client on a thread of its own."""

    def __init__(self, server: Server, stop: threading.Event, number: int, seed: int) -> None:
        super().__init__(name=f"mover-{number}", daemon=True)
        self.moves: dict[str, Move] = {}
        self.faults: list[str] = []
        self.standing = 0
        self._server = server
        self._halt = stop
        self._number = number
        self._random = random.Random(seed * 1000 + number)
        self._client: ProtocolClient | None = None

    def run(self) -> None:
        """Move until the test stops it."""
        steps: Sequence[Callable[[str, Move], None]] = [self._transact] * 6 + [self._batch] * 2
        while not self._halt.is_set():
            self._audit()
            mark = f"{self._number}.{len(self.moves)}"
            move = self.moves[mark] = Move(f"p{self._random.randrange(PARTITIONS)}")
            try:
                self._random.choice(steps)(mark, move)
            except Given:
                move.stands = False
            self.standing += bool(move.stands)
        if self._client is not None:
            self._client.close()

    # Steps.

    def _transact(self, mark: str, move: Move) -> None:
        """Read, write and commit or abort within a transaction."""
        key = encode_row(account(move.partition, 0)[:1])
        begin = pb.StartLocalTransactionRequest(table_name=TABLE, key=key)
        within = str(self._ask(begin).transaction_id)
        self._read(move, within)
        for _ in range(self._random.randint(1, 2)):
            self._write(mark, move, within)
        if self._random.random() < 0.2:
            self._ask(pb.AbortTransactionRequest(transaction_id=within))
            move.stands = False
        else:
            self._commit(move, within)

    def _read(self, move: Move, within: str) -> None:
        if self._random.random() < 0.5:
            move.reads = self._range(move.partition, within)
            return
        for number in range(ROWS):
            wanted = get(TABLE, account(move.partition, number), transaction_id=within)
            (row,) = rows(self._ask(wanted).row)
            move.reads[number] = int((shown(row) or {})["v"])

    def _write(self, mark: str, move: Move, within: str) -> None:
        """Write what the rows are to hold, computed here from what the transaction reads now."""
        source, target = self._random.sample(range(ROWS), 2)
        amount = self._random.randint(1, 30)
        now = self._range(move.partition, within)
        for number, after in ((source, now[source] - amount), (target, now[target] + amount)):
            row = account(move.partition, number)
            self._ask(put(TABLE, row, balance(after, mark), transaction_id=within))

    def _commit(self, move: Move, within: str) -> None:
        request = pb.CommitTransactionRequest(transaction_id=within)
        for _ in range(3000):
            try:
                ask(self._connect(), request)
                move.stands = True
                return
            except ServerError as error:
                if error.code == "OTSSessionNotExist":
                    move.stands = False
                    return
                self._knock(error)
            except (NoAnswer, FileNotFoundError) as error:
                self._knock(error)

    def _batch(self, mark: str, move: Move) -> None:
        """Move by two increments in an atomic batch, which reads nothing."""
        source, target = self._random.sample(range(ROWS), 2)
        writes = [
            update(TABLE, account(move.partition, number), [Put("by", mark), Increment("v", by)])
            for number, by in ((source, -7), (target, 7))
        ]
        try:
            answer = ask(self._connect(), batch_write([(TABLE, writes)], is_atomic=True))
        except (NoAnswer, ServerError, FileNotFoundError) as error:
            is_unknown = isinstance(error, NoAnswer) or getattr(error, "code", "") == "OTSTimeout"
            move.stands = None if is_unknown else False
            self._knock(error)
            return
        codes = [row.error.code if not row.is_ok else "" for row in answer.tables[0].rows]
        assert codes[0] == codes[1], "an atomic batch has one outcome"
        move.stands = None if codes[0] == "OTSTimeout" else not codes[0]

    def _audit(self) -> None:
        """Read a partition as everybody does: it never shows half a move."""
        partition = f"p{self._random.randrange(PARTITIONS)}"
        try:
            found = self._range(partition)
        except Given:
            return
        if sum(found.values()) != TOTAL:
            self.faults.append(f"{partition} was read as {found}")

    # Asking.

    def _range(self, partition: str, within: str | None = None) -> dict[int, int]:
        low, high = account(partition, INF_MIN), account(partition, INF_MAX)
        answer = self._ask(get_range(TABLE, low, high, transaction_id=within))
        return {int(str(row.key[1][1])): int((shown(row) or {})["v"]) for row in rows(answer.rows)}

    def _ask(self, request: Message) -> Any:
        """Ask once; raises ``Given`` for every failure, which leaves no move behind."""
        try:
            return ask(self._connect(), request)
        except (NoAnswer, ServerError, FileNotFoundError) as error:
            self._knock(error)
            raise Given from error

    def _connect(self) -> ProtocolClient:
        if self._client is None:
            self._client = self._server.client()
        return self._client

    def _knock(self, error: Exception) -> None:
        """Wait a little; a server that came back may have another address."""
        if isinstance(error, NoAnswer) and self._client is not None:
            self._client.close()
            self._client = None
        self._halt.wait(KNOCK_S)
