"""Many rows in one request: writes of a batch, and rows read by their keys.

Each row of a batch succeeds or fails separately, unless the batch is atomic. Rows that the server
reports as not written are retried within the client's patience. Other rows are never retried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.client.failures import failure_of
from rowtide.client.operations import (
    Expect,
    Operations,
    Steps,
    call_with_id,
    columns_to_get,
    condition_message,
    encode_put,
)
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.retries import PAUSE_S_MAX
from rowtide.client.row_values import (
    KeyInput,
    KeyPairs,
    RowDict,
    RowInput,
    TableKey,
    key_pairs,
    newest,
    split_row,
)
from rowtide.client.wire_row import Special, encode_row
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import StoreError, Unavailable, invalid

__all__ = [
    "BatchFailed",
    "DeleteRow",
    "PutRow",
    "RowOutcome",
    "RowWrite",
    "UpdateRow",
    "read_rows",
    "write_rows",
]

PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class PutRow:
    """Replaces a row."""

    table: str
    row: RowInput
    expect: Expect = "anything"
    condition: Predicate | None = None


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """Sets the columns of ``row``, and deletes or increments others."""

    table: str
    row: RowInput
    delete: Sequence[str] = ()
    increment: Mapping[str, int] = field(default_factory=dict)
    expect: Expect = "anything"
    condition: Predicate | None = None


@dataclass(frozen=True, slots=True)
class DeleteRow:
    """Deletes a row."""

    table: str
    key: KeyInput
    expect: Expect = "anything"
    condition: Predicate | None = None


RowWrite = PutRow | UpdateRow | DeleteRow


class RowOutcome(NamedTuple):
    """The result of one row: its key if it was written, else the failure."""

    key: RowDict | None
    failure: StoreError | None


class BatchFailed(StoreError):
    """Some rows of a batch were not written, or may not have been.

    ``outcomes`` has one entry for each row, in the order of the batch. ``code`` and ``message`` are
    those of the first failure.
    """

    def __init__(self, outcomes: Sequence[RowOutcome]) -> None:
        failures = [outcome.failure for outcome in outcomes if outcome.failure is not None]
        first = failures[0]
        super().__init__(
            first.code,
            f"{len(failures)} of {len(outcomes)} rows failed, the first of them: {first.message}",
        )
        self.outcomes = outcomes
        self.request_id = first.request_id


class _Pauses:
    """The pauses between retries of rows, until the client's patience is used up."""

    def __init__(self, patience_s: float) -> None:
        self._left_s = patience_s
        self._next_s = PAUSE_S

    def take_s(self) -> float | None:
        pause_s, self._next_s = self._next_s, min(2 * self._next_s, PAUSE_S_MAX)
        self._left_s -= pause_s
        return pause_s if self._left_s >= 0 else None


# Writing.


class _Encoded(NamedTuple):
    """A row as it is sent; ``key`` is None if the server assigns the key."""

    kind: pb.OperationType
    change: bytes
    key: RowDict | None
    condition: pb.Condition


def write_rows(
    operations: Operations, writes: Sequence[RowWrite], *, atomic: bool, transaction: str = ""
) -> Steps[list[RowDict]]:
    """Write rows; return their keys. Raises ``BatchFailed``."""
    most = operations.limits.batch_write_rows_max
    if len(writes) > most:
        raise invalid(f"Rows count exceeds the upper limit: {most}, with {len(writes)} rows.")
    rows: list[_Encoded] = []
    for write in writes:
        rows.append((yield from _encode(operations, write)))  # noqa: PERF401
    outcomes: dict[int, RowOutcome] = {}
    left = list(range(len(writes)))
    pauses, after_s = _Pauses(operations.patience_s), 0.0
    while left:
        request = _write_request(writes, rows, left, atomic=atomic, transaction=transaction)
        answer, request_id = yield from call_with_id(
            "BatchWriteRow", request, pb.BatchWriteRowResponse, after_s=after_s
        )
        sent = _in_order_of_tables(writes, left)
        for number, row in zip(sent, _rows_of(answer), strict=True):
            outcomes[number] = _outcome(rows[number], row, request_id)
        left = [n for n in left if isinstance(outcomes[n].failure, Unavailable)]
        pause_s = pauses.take_s()
        if pause_s is None:
            break
        after_s = pause_s
    return _keys_of([outcomes[number] for number in range(len(writes))])


def _keys_of(outcomes: Sequence[RowOutcome]) -> list[RowDict]:
    if any(outcome.failure is not None for outcome in outcomes):
        raise BatchFailed(outcomes)
    return [outcome.key or {} for outcome in outcomes]


def _encode(operations: Operations, write: RowWrite) -> Steps[_Encoded]:
    limits = operations.limits
    test = condition_message(write.expect, write.condition)

    def attempt(key: TableKey) -> Steps[_Encoded]:
        yield from ()
        if isinstance(write, PutRow):
            put = encode_put(key, write.row, limits)
            return _Encoded(pb.PUT, put.row, put.key, test)
        if isinstance(write, UpdateRow):
            change = operations.encode_update(key, write.row, write.delete, write.increment)
            return _Encoded(pb.UPDATE, change, _key_in(split_row(key, write.row, limits)[0]), test)
        pairs = key_pairs(key, write.key, limits)
        return _Encoded(pb.DELETE, encode_row(pairs, deleted=True), _key_in(pairs), test)

    return operations.with_key(write.table, attempt)


def _key_in(pairs: KeyPairs) -> RowDict:
    return {name: value for name, value in pairs if not isinstance(value, Special)}


def _in_order_of_tables(writes: Sequence[RowWrite], numbers: Sequence[int]) -> list[int]:
    """Return the rows in the order of a request: by table, tables in order of first use."""
    tables: dict[str, list[int]] = {}
    for number in numbers:
        tables.setdefault(writes[number].table, []).append(number)
    return [number for its in tables.values() for number in its]


def _write_request(
    writes: Sequence[RowWrite],
    rows: Sequence[_Encoded],
    numbers: Sequence[int],
    *,
    atomic: bool,
    transaction: str,
) -> pb.BatchWriteRowRequest:
    request = pb.BatchWriteRowRequest()
    if atomic:
        request.is_atomic = True
    if transaction:
        request.transaction_id = transaction
    for number in _in_order_of_tables(writes, numbers):
        name, row = writes[number].table, rows[number]
        if not request.tables or request.tables[-1].table_name != name:
            request.tables.add(table_name=name)
        part = request.tables[-1].rows.add(
            type=row.kind, row_change=row.change, condition=row.condition
        )
        if row.key is None:
            part.return_content.return_type = pb.RT_PK
    return request


def _rows_of(answer: pb.BatchWriteRowResponse) -> list[pb.RowInBatchWriteRowResponse]:
    return [row for table in answer.tables for row in table.rows]


def _outcome(sent: _Encoded, row: pb.RowInBatchWriteRowResponse, request_id: str) -> RowOutcome:
    if not row.is_ok:
        return RowOutcome(None, failure_of(row.error.code, row.error.message, request_id))
    return RowOutcome(sent.key or newest(plainbuffer.decode_row(row.row)), None)


# Reading.


def read_rows(
    operations: Operations,
    table: str,
    keys: Sequence[KeyInput],
    columns: Sequence[str],
    filter: Predicate | ColumnPage | None,
) -> Steps[list[RowDict | None]]:
    """Return a row for each key, or None if there is none. Sends as many requests as needed."""

    def attempt(key: TableKey) -> Steps[list[RowDict | None]]:
        wanted = [encode_row(key_pairs(key, one, operations.limits)) for one in keys]
        found: dict[int, RowDict | None] = {}
        left = list(range(len(keys)))
        pauses, after_s = _Pauses(operations.patience_s), 0.0
        while left:
            now, later = left[: (most := operations.limits.batch_get_rows_max)], left[most:]
            request = pb.BatchGetRowRequest()
            request.tables.add(
                table_name=table,
                primary_key=[wanted[number] for number in now],
                columns_to_get=columns_to_get(key, columns),
                max_versions=1,
                filter=None if filter is None else filter.encode(),
            )
            answer, request_id = yield from call_with_id(
                "BatchGetRow", request, pb.BatchGetRowResponse, after_s=after_s
            )
            refused = _take(now, answer, found, request_id)
            after_s = 0.0
            if refused:
                pause_s = pauses.take_s()
                if pause_s is None or not all(isinstance(f, Unavailable) for f in refused.values()):
                    raise next(iter(refused.values()))
                after_s = pause_s
            left = [*refused, *later]
        return [found[number] for number in range(len(keys))]

    return operations.with_key(table, attempt)


def _take(
    numbers: Sequence[int],
    answer: pb.BatchGetRowResponse,
    found: dict[int, RowDict | None],
    request_id: str,
) -> dict[int, StoreError]:
    """Store the rows of an answer in ``found``; return the failures by row number."""
    refused: dict[int, StoreError] = {}
    rows = [row for table in answer.tables for row in table.rows]
    for number, row in zip(numbers, rows, strict=True):
        if not row.is_ok:
            refused[number] = failure_of(row.error.code, row.error.message, request_id)
        else:
            found[number] = newest(plainbuffer.decode_row(row.row)) if row.row else None
    return refused
