"""The operations on local transactions, and how a request's transaction is found.

An id names its shard, so whoever gets a request knows which owner holds the transaction. An id that
belongs to another instance is as unknown as one that was never given out.
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
        """Raise OTSDataOutOfRange where a request names another table than the transaction's."""
        if table.table_id != self.table.table_id:
            raise Rejected(
                "OTSDataOutOfRange",
                f"Data out of scope of transaction. Transaction Table:{self.table.name}. "
                f"Data Table:{table.name}",
            )

    def apply(self, table: Table, change: ChangeRequest) -> Outcome:
        """Decide a change of a row within the transaction. Raises what refuses it."""
        self.require_table(table)
        return self.owner.apply(self.id, change)

    def reading(self, table: Table, *partition_keys: bytes) -> Transaction:
        """Return the open transaction, to read rows of these partition keys. Raises what refuses.

        Its view is that of its own writes over the rows.
        """
        self.require_table(table)
        self.owner.require_readable()
        transaction = self.owner.transactions.idle(self.id).transaction
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
        raise session_missing().unless(beyond=catalog.precedes(transaction_id.shard_id))
    table, shard = found
    if shard.sealed_us:
        # What was open ended with the shard; what was committed is remembered wherever its rows
        # are: children in the same slot share that with them, a move takes it along.
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
        """Apply everything that was written in a transaction, at once."""
        request = parse(pb.CommitTransactionRequest, body)
        session = find_session(self._directory, identity, request.transaction_id)
        if session.owner.transactions.get(session.id) is not None:
            self._directory.require_space()
        answer = Answer(b"", self._loop)
        session.owner.commit(session.id, answer)
        return answer.future

    @answers("AbortTransaction")
    def abort_transaction(self, identity: Identity, body: bytes) -> bytes:
        """Forget everything that was written in a transaction.

        The answer has no fields, but the Node SDK reads it as if it were the request: it is told
        its id again, which the others skip.
        """
        request = parse(pb.AbortTransactionRequest, body)
        session = find_session(self._directory, identity, request.transaction_id)
        session.owner.abort(session.id)
        told = pb.AbortTransactionRequest(transaction_id=request.transaction_id)
        return told.SerializeToString()


class Answer:
    """An answer that is known beforehand, given once its operation has succeeded."""

    __slots__ = ("_body", "future")

    def __init__(self, body: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._body = body

    def __call__(self, told: Outcome | StoreError) -> None:
        if self.future.done():
            return
        if isinstance(told, StoreError):
            self.future.set_exception(told)
        else:
            self.future.set_result(self._body)
