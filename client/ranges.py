"""A range of rows, read page by page in the order of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.client.operations import Operations, Steps, call, columns_to_get
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.row_values import (
    INF_MAX,
    INF_MIN,
    Input,
    KeyInput,
    RowDict,
    TableKey,
    fill_bound,
    newest,
)
from rowtide.client.wire_row import encode_row
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["RangeReading", "RangeSpec"]


class RangeSpec(NamedTuple):
    """Which rows of a table to read, and which columns.

    A bound means all keys that begin with it. The range includes those of ``start`` and excludes
    those of ``end``. ``prefix`` is both bounds: all rows whose key begins with it. ``reverse``
    reads from a high start down to a low end. Reads at most ``limit`` rows, at most ``page_rows``
    in an answer.
    """

    table: str
    start: KeyInput | None = None
    end: KeyInput | None = None
    prefix: KeyInput | None = None
    reverse: bool = False
    columns: Sequence[str] = ()
    filter: Predicate | ColumnPage | None = None
    limit: int | None = None
    page_rows: int | None = None
    transaction: str = ""
    partition: Input | None = None
    """The first key column of both bounds, which omit it."""


class RangeReading:
    """Reads a range page by page. ``has_more`` is False after the last page."""

    def __init__(self, operations: Operations, spec: RangeSpec) -> None:
        if spec.prefix is not None and (spec.start is not None or spec.end is not None):
            raise ValueError("a range has a prefix, or a start and an end, not both")
        if spec.limit is not None and spec.limit < 0:
            raise ValueError(f"limit {spec.limit} must be 0 at least")
        self.has_more = spec.limit != 0
        self._operations = operations
        self._spec = spec
        self._left = spec.limit
        self._request: pb.GetRangeRequest | None = None
        self._part: RowDict = {}
        """The columns received so far of a row that is too large for one answer."""

    def next_page(self) -> Steps[list[RowDict]]:
        """Return the next rows. A page may be empty although more follow."""
        if self._request is None:
            # Only the first page retries if the table was created again. Later pages belong to the
            # old table.
            return self._operations.with_key(self._spec.table, self._first_page)
        return self._page(self._request)

    def _first_page(self, key: TableKey) -> Steps[list[RowDict]]:
        request = self._first_request(key)
        page = yield from self._page(request)
        self._request = request
        return page

    def _page(self, request: pb.GetRangeRequest) -> Steps[list[RowDict]]:
        limits = [n for n in (self._left, self._spec.page_rows) if n is not None]
        if limits:
            request.limit = min(limits)
        answer = yield from call("GetRange", request, pb.GetRangeResponse)
        rows = [newest(row) for row in plainbuffer.decode_rows(answer.rows)]
        if rows and self._part:
            rows[0] = self._part | rows[0]
            self._part = {}
        if rows and answer.next_token:
            self._part = rows.pop()
        request.inclusive_start_primary_key = answer.next_start_primary_key
        request.token = answer.next_token
        if self._left is not None:
            self._left -= len(rows)
        self.has_more = bool(answer.next_start_primary_key) and self._left != 0
        return rows

    def _first_request(self, key: TableKey) -> pb.GetRangeRequest:
        spec = self._spec
        low, high = (INF_MAX, INF_MIN) if spec.reverse else (INF_MIN, INF_MAX)
        limits = self._operations.limits
        if spec.prefix is not None:
            start, end = (
                fill_bound(key, spec.prefix, low, limits),
                fill_bound(key, spec.prefix, high, limits),
            )
        else:
            first = {} if spec.partition is None else {key.names[0]: spec.partition}
            start = fill_bound(key, {**first, **(spec.start or {})}, low, limits)
            # Rows whose key begins with a given end are excluded. Without an end no row is.
            rest = low if spec.end else high
            end = fill_bound(key, {**first, **(spec.end or {})}, rest, limits)
        request = pb.GetRangeRequest(
            table_name=spec.table,
            direction=pb.BACKWARD if spec.reverse else pb.FORWARD,
            columns_to_get=columns_to_get(key, spec.columns),
            max_versions=1,
            inclusive_start_primary_key=encode_row(start),
            exclusive_end_primary_key=encode_row(end),
            filter=None if spec.filter is None else spec.filter.encode(),
        )
        if spec.transaction:
            request.transaction_id = spec.transaction
        return request
