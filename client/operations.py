"""What each operation sends and how its answer is read, for both forms of the client.

An operation is a generator. It yields an ``Exchange`` and receives the answer, or the failure is
raised where it yielded. It returns the result. Nothing here does I/O or waits; an ``Exchange`` says
how long to wait before it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from google.protobuf.message import Message

from rowtide.client.http_exchange import HttpAnswer
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.row_values import (
    KeyInput,
    RowDict,
    RowInput,
    TableKey,
    Versioned,
    cells_of,
    key_pairs,
    newest,
    split_row,
)
from rowtide.client.table_requests import table_key
from rowtide.client.wire_row import Change, Delete, Increment, Special, encode_row
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.operations import PUT_ONCE
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, Rejected
from rowtide.core.values.limits import INT32_MAX, Limits

__all__ = [
    "Exchange",
    "Expect",
    "Operations",
    "Steps",
    "StoredOnce",
    "call",
    "call_with_id",
    "condition_message",
    "encode_put",
]

Expect = Literal["anything", "exists", "absent"]
"""The state of the row that a write expects."""

_EXPECTED: dict[str, pb.RowExistenceExpectation] = {
    "anything": pb.IGNORE,
    "exists": pb.EXPECT_EXIST,
    "absent": pb.EXPECT_NOT_EXIST,
}

UNKNOWN_PAUSE_S = 0.2
"""Pause before a request with an unknown outcome is sent again."""


class StoredOnce(NamedTuple):
    """The key of the stored row; ``is_new`` is False if another put has stored it before."""

    key: RowDict
    is_new: bool


class Exchange(NamedTuple):
    """A request to be sent, ``after_s`` seconds from now."""

    operation: str
    body: bytes
    after_s: float = 0.0


_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", bound=Message)
Steps = Generator[Exchange, HttpAnswer, _Result]


def call(
    operation: str, request: Message, answer: type[_Answer], *, after_s: float = 0.0
) -> Steps[_Answer]:
    """Send one message and return its answer."""
    return (yield from call_with_id(operation, request, answer, after_s=after_s))[0]


def call_with_id(
    operation: str, request: Message, answer: type[_Answer], *, after_s: float
) -> Steps[tuple[_Answer, str]]:
    """Send one message; return its answer and the id that the server gave the request."""
    received = yield Exchange(operation, request.SerializeToString(), after_s)
    return answer.FromString(received.content), received.request_id


def condition_message(expect: Expect, condition: Predicate | None) -> pb.Condition:
    """Return the message of a write's condition. Raises ``ValueError``."""
    if expect not in _EXPECTED:
        raise ValueError(f"expect is one of {', '.join(_EXPECTED)}, not {expect!r}")
    message = pb.Condition(row_existence=_EXPECTED[expect])
    if condition is not None:
        message.column_condition = condition.encode()
    return message


class _EncodedPut(NamedTuple):
    """A put as it is sent; ``key`` is None if the server assigns the key."""

    row: bytes
    key: RowDict | None


def encode_put(key: TableKey, row: RowInput, limits: Limits) -> _EncodedPut:
    """Return the bytes of a put and its key."""
    pairs, puts = split_row(key, row, limits, assign=True)
    values = {name: value for name, value in pairs if not isinstance(value, Special)}
    return _EncodedPut(encode_row(pairs, puts), values if len(values) == len(pairs) else None)


class Operations:
    """The operations of one client. Caches the key columns of the tables it used."""

    def __init__(self, limits: Limits, patience_s: float) -> None:
        self.limits = limits
        self.patience_s = patience_s
        self._keys: dict[str, TableKey] = {}

    # The key of a table.

    def forget(self, table: str) -> None:
        """Drop a table's cached key; the next use describes the table again."""
        self._keys.pop(table, None)

    def with_key(self, table: str, attempt: Callable[[TableKey], Steps[_Result]]) -> Steps[_Result]:
        """Return what ``attempt`` returns for a table's key.

        A rejected key may belong to a table that was created again. Then the attempt is repeated
        once. This is safe, because a rejected request was not applied.
        """
        known = self._keys.get(table)
        if known is None:
            return (yield from attempt((yield from self._describe_key(table))))
        try:
            return (yield from attempt(known))
        except Rejected as error:
            if error.code not in ("OTSInvalidPK", "OTSObjectNotExist"):
                raise
            self.forget(table)
            found = yield from self._describe_key(table)
            if found == known:
                raise
        return (yield from attempt(found))

    def _describe_key(self, table: str) -> Steps[TableKey]:
        request = pb.DescribeTableRequest(table_name=table)
        answer = yield from call("DescribeTable", request, pb.DescribeTableResponse)
        self._keys[table] = table_key(answer)
        return self._keys[table]

    # Rows.

    def put(
        self,
        table: str,
        row: RowInput,
        expect: Expect,
        condition: Predicate | None,
        transaction: str = "",
    ) -> Steps[RowDict]:
        """Replace a row; return its key."""
        test = condition_message(expect, condition)

        def attempt(key: TableKey) -> Steps[RowDict]:
            put = encode_put(key, row, self.limits)
            request = pb.PutRowRequest(table_name=table, row=put.row, condition=test)
            if put.key is None:
                request.return_content.return_type = pb.RT_PK
            if transaction:
                request.transaction_id = transaction
            answer = yield from call("PutRow", request, pb.PutRowResponse)
            return put.key or newest(plainbuffer.decode_row(answer.row))

        return self.with_key(table, attempt)

    def put_once(self, table: str, row: RowInput, index: str) -> Steps[StoredOnce]:
        """Put a row that the server numbers, unless a local index has one like it.

        An unknown outcome is retried, because the same request adds no second row.
        """

        def attempt(key: TableKey) -> Steps[StoredOnce]:
            put = encode_put(key, row, self.limits)
            request = pb.PutOnceRequest(table_name=table, row=put.row, index_name=index)
            answer = yield from self._repeat(PUT_ONCE, request, pb.PutOnceResponse)
            return StoredOnce(newest(plainbuffer.decode_row(answer.row)), answer.is_new)

        return self.with_key(table, attempt)

    def _repeat(self, operation: str, request: Message, answer: type[_Answer]) -> Steps[_Answer]:
        """Send a message until its outcome is known, within the client's patience."""
        left_s, after_s = self.patience_s, 0.0
        while True:
            try:
                return (yield from call(operation, request, answer, after_s=after_s))
            except OutcomeUnknown:
                after_s = UNKNOWN_PAUSE_S
                left_s -= after_s
                if left_s < 0:
                    raise

    def update(
        self,
        table: str,
        row: RowInput,
        *,
        delete: Sequence[str],
        increment: Mapping[str, int],
        returning: Sequence[str],
        expect: Expect,
        condition: Predicate | None,
        transaction: str = "",
    ) -> Steps[RowDict]:
        """Change columns of a row; return the new values of the columns ``returning``."""
        test = condition_message(expect, condition)

        def attempt(key: TableKey) -> Steps[RowDict]:
            change = self.encode_update(key, row, delete, increment)
            request = pb.UpdateRowRequest(table_name=table, row_change=change, condition=test)
            if returning:
                request.return_content.return_type = pb.RT_AFTER_MODIFY
                request.return_content.return_column_names.extend(returning)
            if transaction:
                request.transaction_id = transaction
            answer = yield from call("UpdateRow", request, pb.UpdateRowResponse)
            return newest(plainbuffer.decode_row(answer.row)) if answer.row else {}

        return self.with_key(table, attempt)

    def encode_update(
        self, key: TableKey, row: RowInput, delete: Sequence[str], increment: Mapping[str, int]
    ) -> bytes:
        """Return the bytes of an update."""
        pairs, puts = split_row(key, row, self.limits)
        changes: list[Change] = [*puts]
        changes += [Delete(name) for name in delete]
        changes += [Increment(name, by) for name, by in increment.items()]
        return encode_row(pairs, changes)

    def delete(
        self,
        table: str,
        key_values: KeyInput,
        expect: Expect,
        condition: Predicate | None,
        transaction: str = "",
    ) -> Steps[None]:
        """Delete a row."""
        test = condition_message(expect, condition)

        def attempt(key: TableKey) -> Steps[None]:
            wanted = encode_row(key_pairs(key, key_values, self.limits), deleted=True)
            request = pb.DeleteRowRequest(table_name=table, primary_key=wanted, condition=test)
            if transaction:
                request.transaction_id = transaction
            yield from call("DeleteRow", request, pb.DeleteRowResponse)

        return self.with_key(table, attempt)

    def get(
        self,
        table: str,
        key_values: KeyInput,
        columns: Sequence[str],
        filter: Predicate | ColumnPage | None,
        transaction: str = "",
    ) -> Steps[RowDict | None]:
        """Return a row, or None if there is none."""

        def attempt(key: TableKey) -> Steps[RowDict | None]:
            request = self._get_request(table, key, key_values, columns, filter)
            if transaction:
                request.transaction_id = transaction
            found: RowDict | None = None
            for row in (yield from self._parts(request)):
                # A row that is too large for one answer comes in parts, each with the key.
                found = (found or {}) | newest(row)
            return found if found is None else _order_columns(key, found)

        return self.with_key(table, attempt)

    def get_versions(
        self, table: str, key_values: KeyInput, columns: Sequence[str], max_versions: int | None
    ) -> Steps[dict[str, list[Versioned]]]:
        """Return the versions of a row's columns, the newest first."""

        def attempt(key: TableKey) -> Steps[dict[str, list[Versioned]]]:
            request = self._get_request(table, key, key_values, columns, None)
            request.max_versions = max_versions or INT32_MAX
            found: dict[str, list[Versioned]] = {}
            for row in (yield from self._parts(request)):
                for name, versions in cells_of(row).items():
                    found.setdefault(name, []).extend(versions)
            return found

        return self.with_key(table, attempt)

    def _get_request(
        self,
        table: str,
        key: TableKey,
        key_values: KeyInput,
        columns: Sequence[str],
        filter: Predicate | ColumnPage | None,
    ) -> pb.GetRowRequest:
        return pb.GetRowRequest(
            table_name=table,
            primary_key=encode_row(key_pairs(key, key_values, self.limits)),
            columns_to_get=columns_to_get(key, columns),
            max_versions=1,
            filter=None if filter is None else filter.encode(),
        )

    def _parts(self, request: pb.GetRowRequest) -> Steps[list[plainbuffer.RowChange]]:
        parts: list[plainbuffer.RowChange] = []
        while True:
            answer = yield from call("GetRow", request, pb.GetRowResponse)
            if answer.row:
                parts.append(plainbuffer.decode_row(answer.row))
            if not answer.next_token:
                return parts
            request.token = answer.next_token

    # Local transactions.

    def start_transaction(self, table: str, partition: object) -> Steps[str]:
        """Begin a transaction on one value of the first key column; return its id."""

        def attempt(key: TableKey) -> Steps[str]:
            first = {key.names[0]: partition}
            pairs = key_pairs(key, first, self.limits, whole=False)
            request = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(pairs))
            answer = yield from call(
                "StartLocalTransaction", request, pb.StartLocalTransactionResponse
            )
            return answer.transaction_id

        return self.with_key(table, attempt)

    def commit(self, transaction: str) -> Steps[None]:
        """Apply a transaction.

        An unknown outcome is retried: the server remembers commits for ten minutes, and a repeated
        commit reports the result of the first.
        """
        request = pb.CommitTransactionRequest(transaction_id=transaction)
        yield from self._repeat("CommitTransaction", request, pb.CommitTransactionResponse)

    def abort(self, transaction: str) -> Steps[None]:
        """Drop a transaction."""
        request = pb.AbortTransactionRequest(transaction_id=transaction)
        yield from call("AbortTransaction", request, pb.AbortTransactionResponse)


def columns_to_get(key: TableKey, columns: Iterable[str]) -> list[str]:
    """Return the columns to read, with the key, so that a row without the others is found."""
    wanted = list(columns)
    return [*key.names, *wanted] if wanted else []


def _order_columns(key: TableKey, row: RowDict) -> RowDict:
    """Return a row with the key's columns first."""
    return {name: row[name] for name in key.names} | row
