"""Rows that rowtide stores for itself in a table of the instance, over the protocol.

Any client with an endpoint and a key pair can read and write them. The first write
creates the table. Columns are texts, integers and booleans, with one version each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowtide.client.changes.own_tables import has_value, make_table
from rowtide.client.endpoint import Endpoint
from rowtide.client.failures import failure_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, StoreError
from rowtide.core.values.schema import BINARY, INTEGER, STRING
from rowtide.core.values.variant import Scalar

__all__ = ["Columns", "KeptKey", "KeptRows"]

KeptKey = tuple[Scalar, ...]
Columns = dict[str, Scalar]

Write = pb.PutRowRequest | pb.UpdateRowRequest | pb.DeleteRowRequest

_TYPES: Mapping[type, int] = {str: STRING, int: INTEGER, bytes: BINARY}


class KeptRows:
    """The rows of ``table``. ``key`` has the names and types of the key columns.

    With ``ttl_s`` a row expires that long after it was written; the least is a day.
    ``guard`` is the key of an existing row and columns. While it is set, a change is made
    only if that row has these columns at the moment of the change. Otherwise the change
    raises ``Rejected``. The guard has the first key value of the rows that it guards.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        table: str,
        key: Sequence[tuple[str, type]],
        *,
        ttl_s: int = -1,
    ) -> None:
        self._endpoint = endpoint
        self._table = table
        self._names = key
        self._ttl_s = ttl_s
        self.guard: tuple[KeptKey, Columns] | None = None

    async def get(self, key: KeptKey) -> Columns | None:
        """Return a row's columns, or None if there is no such row."""
        request = pb.GetRowRequest(
            table_name=self._table, primary_key=self._row(key), max_versions=1
        )
        try:
            response = await self._endpoint.call("GetRow", request, pb.GetRowResponse)
        except Rejected as error:
            if error.code == "OTSObjectNotExist":
                return None
            raise
        return _columns(plainbuffer.decode_row(response.row)) if response.row else None

    async def scan(self, *first: Scalar, after: int | None = None) -> list[tuple[KeptKey, Columns]]:
        """Return the rows whose keys begin with ``first``, in order.

        With ``after``, only rows whose next key column is above it.
        """
        request = pb.GetRangeRequest(
            table_name=self._table,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=self._encode_bound(first, variant.V_INF_MIN),
            exclusive_end_primary_key=self._encode_bound(first, variant.V_INF_MAX),
        )
        if after is not None:
            start = self._encode_bound((*first, after), variant.V_INF_MAX)
            request.inclusive_start_primary_key = start
        found: list[tuple[KeptKey, Columns]] = []
        while True:
            try:
                response = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            except Rejected as error:
                if error.code == "OTSObjectNotExist":
                    return found
                raise
            rows = plainbuffer.decode_rows(response.rows) if response.rows else ()
            found += [(tuple(variant.decode(v) for _, v in row.key), _columns(row)) for row in rows]
            if not response.next_start_primary_key:
                return found
            request.inclusive_start_primary_key = response.next_start_primary_key
            request.token = response.next_token

    async def put(
        self, key: KeptKey, columns: Columns, *, only_if: Columns | None = None, new: bool = False
    ) -> bool:
        """Replace a row. False if the condition fails: ``only_if`` columns, or absent if
        ``new``.
        """
        request = pb.PutRowRequest(
            table_name=self._table, row=self._row(key, columns), condition=_if(only_if, new=new)
        )
        return await self._write("PutRow", request, pb.PutRowResponse)

    async def update(
        self, key: KeptKey, columns: Columns, *, only_if: Columns | None = None
    ) -> bool:
        """Set columns of an existing row. False if it is absent or lacks the ``only_if``
        columns.
        """
        request = pb.UpdateRowRequest(
            table_name=self._table,
            row_change=self._row(key, columns),
            condition=_if(only_if or {}, new=False),
        )
        return await self._write("UpdateRow", request, pb.UpdateRowResponse)

    async def delete(self, key: KeptKey, *, only_if: Columns | None = None) -> bool:
        """Remove a row. False if ``only_if`` is given and the row is absent or differs."""
        request = pb.DeleteRowRequest(
            table_name=self._table,
            primary_key=self._row(key, deleted=True),
            condition=_if(only_if),
        )
        return await self._write("DeleteRow", request, pb.DeleteRowResponse)

    async def _write(self, operation: str, request: Write, answer: type) -> bool:
        if self.guard is not None:
            return await self._write_under_guard(*self.guard, request)
        for attempt in ("first", "with the table"):
            try:
                await self._endpoint.call(operation, request, answer)
                return True
            except Rejected as error:
                if error.code == "OTSConditionCheckFail":
                    return False
                if error.code != "OTSObjectNotExist" or attempt != "first":
                    raise
                if operation != "PutRow":
                    return False
                await self._make()
        return False

    async def _write_under_guard(self, guard: KeptKey, columns: Columns, request: Write) -> bool:
        """Write in one transaction with the guard row, which keeps its columns."""
        batch = pb.BatchWriteRowRequest(is_atomic=True)
        rows = batch.tables.add(table_name=self._table).rows
        rows.add(type=pb.UPDATE, row_change=self._row(guard, columns), condition=_if(columns))
        if isinstance(request, pb.PutRowRequest):
            rows.add(type=pb.PUT, row_change=request.row, condition=request.condition)
        elif isinstance(request, pb.UpdateRowRequest):
            rows.add(type=pb.UPDATE, row_change=request.row_change, condition=request.condition)
        else:
            rows.add(type=pb.DELETE, row_change=request.primary_key, condition=request.condition)
        failure = await self._failure(batch)
        if failure is None:
            return True
        if failure.code != "OTSConditionCheckFail":
            raise failure
        # One of the two conditions failed. If the guard does not hold now, the process
        # may not write.
        there = await self.get(guard)
        if there is None or not columns.items() <= there.items():
            raise Rejected(
                failure.code, f"Another process is responsible for the rows of {self._table} now."
            )
        return False

    async def _failure(self, batch: pb.BatchWriteRowRequest) -> StoreError | None:
        response = await self._endpoint.call("BatchWriteRow", batch, pb.BatchWriteRowResponse)
        failed = [row.error for table in response.tables for row in table.rows if not row.is_ok]
        return failure_of(failed[0].code, failed[0].message) if failed else None

    async def _make(self) -> None:
        options = pb.TableOptions(time_to_live=self._ttl_s, max_versions=1)
        key = [(name, _TYPES[kind]) for name, kind in self._names]
        await make_table(self._endpoint, self._table, key, options)

    def _row(self, key: KeptKey, columns: Columns | None = None, *, deleted: bool = False) -> bytes:
        cells = [
            plainbuffer.put_cell(name.encode(), variant.encode(value), None)
            for name, value in (columns or {}).items()
        ]
        return HEADER + plainbuffer.encode_row(self._key(key), cells, deleted=deleted)

    def _key(self, key: Sequence[Scalar]) -> list[tuple[bytes, bytes]]:
        names = [name.encode() for name, _ in self._names]
        return [(n, variant.encode(v)) for n, v in zip(names, key, strict=True)]

    def _encode_bound(self, first: Sequence[Scalar], rest: bytes) -> bytes:
        key = [variant.encode(value) for value in first]
        key += [rest] * (len(self._names) - len(key))
        names = [name.encode() for name, _ in self._names]
        return HEADER + plainbuffer.encode_row(list(zip(names, key, strict=True)), [])


def _columns(row: plainbuffer.RowChange) -> Columns:
    return {cell.name.decode(): variant.decode(cell.variant) for cell in row.cells}


def _if(columns: Columns | None, *, new: bool = False) -> pb.Condition:
    """Return a condition: absent if ``new``, present with ``columns``, or none at all."""
    if new:
        return pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
    if columns is None:
        return pb.Condition(row_existence=pb.IGNORE)
    condition = pb.Condition(row_existence=pb.EXPECT_EXIST)
    tests = [has_value(name, value) for name, value in columns.items()]
    if len(tests) == 1:
        condition.column_condition = tests[0].SerializeToString()
    elif tests:
        both = pb.CompositeColumnValueFilter(combinator=pb.LO_AND, sub_filters=tests)
        whole = pb.Filter(type=pb.FT_COMPOSITE_COLUMN_VALUE, filter=both.SerializeToString())
        condition.column_condition = whole.SerializeToString()
    return condition
