"""The operations on local transactions, and the look-up of a request's transaction.

An id names its shard, so any worker can find the owner of the transaction. An id of
another instance is reported like one that never existed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.group import Transaction
from rowtide.core.shard.reshape import heirs_of
from rowtide.core.shard.transaction_id import TransactionId, parse_id, session_missing
from rowtide.core.values.errors import Rejected, StoreError, invalid
from rowtide.core.values.schema import Table, check_key, check_table_name
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import read_only
from rowtide.stream.api.row_requests import parse
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["Session", "TransactionOperations", "find_session"]


class Session(NamedTuple):
    """A transaction that a request names: its id, its table, and the owner that holds it."""

    id: TransactionId
    table: Table
    owner: ShardOwner

    def require_table(self, table: Table) -> None:
        """Raise OTSDataOutOfRange if a request names another table than the transaction's."""
        if table.table_id != self.table.table_id:
            raise Rejected(
                "OTSDataOutOfRange",
                f"Data out of scope of transaction. Transaction Table:{self.table.name}. "
                f"Data Table:{table.name}",
            )

    def apply(self, table: Table, change: ChangeRequest) -> Outcome:
        """Evaluate a change of a row within the transaction. Raises if it is rejected."""
        self.require_table(table)
        return self.owner.apply(self.id, change)

    def reading(self, table: Table, *partition_keys: bytes) -> Transaction:
        """Return the open transaction, to read rows of these partition keys. Raises if
        not allowed.

        Its view has its own writes over the stored rows.
        """
        self.require_table(table)
        self.owner.require_readable()
        transaction = self.owner.transactions.require_idle(self.id).transaction
        for partition_key in partition_keys:
            transaction.require(partition_key)
        return transaction


def find_session(directory: Directory, identity: Identity, text: str) -> Session:
    """Return the transaction that a request names, open or not.

    Raises OTSParameterInvalid, OTSSessionNotExist, ``Unavailable``.
    """
    transaction_id = parse_id(text)
    catalog = directory.catalog
    found = catalog.shards.get(transaction_id.shard_id)
    if found is None or found[0].instance != identity.instance:
        raise session_missing().unless(beyond=catalog.can_exist_unread(transaction_id.shard_id))
    table, shard = found
    if shard.sealed_us:
        # Open transactions ended with the shard. Committed ones are remembered where
        # their rows are: children in the same slot share them, a move takes them along.
        shard = next(iter(heirs_of(table, shard.shard_id)), shard)
    return Session(transaction_id, table, directory.shard(shard))


class TransactionOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._loop = asyncio.get_running_loop()

    @answers("StartLocalTransaction")
    def start_local_transaction(self, identity: Identity, body: bytes) -> Awaitable[bytes]:
        """Open a transaction on one partition key."""
        request = parse(pb.StartLocalTransactionRequest, body)
        directory = self._directory
        check_table_name(request.table_name, directory.limits)
        table = directory.table(identity.instance, request.table_name)
        if table.main:
            raise read_only(table)
        if not table.enable_local_txn:
            raise invalid(
                "Try to call method using explicit transaction on explicit-transaction-disabled "
                "table."
            )
        key = plainbuffer.decode_row(request.key, cells_max=0).key
        if len(key) != 1:
            raise invalid("StartLocalTransaction support only one primary key.")
        check_key(replace(table, key=table.key[:1]), key, directory.limits)
        directory.require_space()
        owner = directory.owner(table, key)
        transaction_id = TransactionId(
            owner.shard.shard_id, directory.clock_us(), secrets.randbits(64)
        )
        response = pb.StartLocalTransactionResponse(transaction_id=str(transaction_id))
        answer = Answer(response.SerializeToString(), self._loop)
        owner.begin(transaction_id, key[0][1], answer)
        return answer.future

    @answers("CommitTransaction")
    def commit_transaction(self, identity: Identity, body: bytes) -> Awaitable[bytes]:
        """Apply all writes of a transaction at once."""
        request = parse(pb.CommitTransactionRequest, body)
        session = find_session(self._directory, identity, request.transaction_id)
        if session.owner.transactions.get(session.id) is not None:
            self._directory.require_space()
        answer = Answer(b"", self._loop)
        session.owner.commit(session.id, answer)
        return answer.future

    @answers("AbortTransaction")
    def abort_transaction(self, identity: Identity, body: bytes) -> bytes:
        """Drop all writes of a transaction.

        The answer has no fields, but the Node SDK reads it like the request. So it
        contains the id again, which the other SDKs skip.
        """
        request = parse(pb.AbortTransactionRequest, body)
        session = find_session(self._directory, identity, request.transaction_id)
        session.owner.abort(session.id)
        answer = pb.AbortTransactionRequest(transaction_id=request.transaction_id)
        return answer.SerializeToString()


class Answer:
    """An answer that is known beforehand, and is sent once its operation has succeeded."""

    __slots__ = ("_body", "future")

    def __init__(self, body: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._body = body

    def __call__(self, outcome: Outcome | StoreError) -> None:
        if self.future.done():
            return
        if isinstance(outcome, StoreError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(self._body)
