"""Pages of rows: which rows a person asked for, and one page of them in O(page).

A page ends when it has enough rows, or when enough was read for one page: rows that a filter
refuses, or bytes. It says at which key the next page begins. ``at`` is that key as the protocol
writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rowtide.client.predicates import ColumnPage
from rowtide.client.row_values import INF_MAX, INF_MIN, RowDict, newest
from rowtide.client.table_requests import describe
from rowtide.client.wire_row import Special, encode_row
from rowtide.connectors.runtime.row_filter import RowTest
from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.variant import Scalar

__all__ = [
    "COLUMNS_SHOWN",
    "ROWS_EXAMINED_MAX",
    "BrowsedTable",
    "RowQuery",
    "RowReader",
    "RowsPage",
    "read_shape",
]

COLUMNS_SHOWN = 12
"""Columns of each row in a list. A row of the list may have more: its own page shows them."""
ROWS_EXAMINED_MAX = 5000
"""Rows that one page reads at most to find those that its filter wants."""
ROWS_EXAMINED_AT_ONCE = 250
"""Of one answer: decoding them must not keep the feeds of this process waiting."""
BYTES_MAX = 8 * 1024 * 1024
"""Bytes of answers after which a page ends, full or not."""
SECONDS_MAX = 2.0


class BrowsedTable(NamedTuple):
    """What the pages of a table know of it. Values of ``hidden`` columns are never shown."""

    name: str
    key: tuple[str, ...]
    types: tuple[type[Scalar], ...]
    hidden: frozenset[str]
    stream_hours: int
    max_versions: int


async def read_shape(
    calls: WorkerCalls,
    credentials: KeyPair,
    instance: str,
    table: str,
    hidden: frozenset[tuple[str, str]],
) -> BrowsedTable:
    """Ask the worker what a table is. Raises ``StoreError`` if there is none."""
    request = pb.DescribeTableRequest(table_name=table)
    found = describe(await calls.call(credentials, instance, "DescribeTable", request))
    return BrowsedTable(
        name=found.name,
        key=tuple(found.key),
        # A column that the server numbers has integers.
        types=tuple(kind if isinstance(kind, type) else int for kind in found.key.values()),
        hidden=frozenset(column for name, column in hidden if name == table),
        stream_hours=found.stream_hours,
        max_versions=found.max_versions,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """Rows whose key begins with ``prefix``, or from ``start`` on and before ``end``.

    A bound has the first key columns and stands for all keys that begin so. ``columns`` are those
    to show; none: the first ones of each row.
    """

    prefix: tuple[Scalar, ...] = ()
    start: tuple[Scalar, ...] = ()
    end: tuple[Scalar, ...] = ()
    is_reverse: bool = False
    filter: RowTest | None = None
    columns: tuple[str, ...] = ()
    at: bytes = b""
    rows_max: int = 50


@dataclass(slots=True)
class RowsPage:
    """Rows of one page. ``next_at`` is where the next page begins, empty at the end."""

    rows: list[RowDict] = field(default_factory=list)
    examined: int = 0
    next_at: bytes = b""


class RowReader:
    """Reads a table with one person's key."""

    def __init__(
        self, calls: WorkerCalls, credentials: KeyPair, instance: str, shape: BrowsedTable
    ) -> None:
        self._calls = calls
        self._credentials = credentials
        self._instance = instance
        self._shape = shape

    async def call(self, operation: str, request: Any) -> Any:
        """Send one request with the person's key."""
        return await self._calls.call(self._credentials, self._instance, operation, request)

    async def read_page(self, query: RowQuery) -> RowsPage:
        """Return a page of rows. Raises ``StoreError``."""
        page = RowsPage()
        request = self._range_request(query)
        ends_s = asyncio.get_running_loop().time() + SECONDS_MAX
        size = 0
        while True:
            if query.filter is None:
                request.limit = query.rows_max - len(page.rows)
            else:
                request.limit = min(ROWS_EXAMINED_AT_ONCE, ROWS_EXAMINED_MAX - page.examined)
            answer, rows = await self._read_part(request)
            size += len(answer.rows)
            has_ended = self._take_rows(query, page, rows)
            page.next_at = page.next_at or answer.next_start_primary_key
            if has_ended or not page.next_at or len(page.rows) >= query.rows_max:
                break
            if page.examined >= ROWS_EXAMINED_MAX or size >= BYTES_MAX:
                break
            if asyncio.get_running_loop().time() > ends_s:
                break
            request.inclusive_start_primary_key, page.next_at = page.next_at, b""
        if query.filter is not None:
            page.rows = await self._read_matches(query, page.rows)
        return page

    def _take_rows(self, query: RowQuery, page: RowsPage, rows: Sequence[RowDict]) -> bool:
        """Add what a page takes of the rows; True if it is the last page.

        ``next_at`` is set if the page is full before the last of the rows.
        """
        for row in rows:
            if len(page.rows) >= query.rows_max:
                page.next_at = encode_row([(name, row[name]) for name in self._shape.key])
                return False
            if self._is_below(query, row):
                page.next_at = b""
                return True
            page.examined += 1
            if self._is_at_end(query, row):
                continue
            if query.filter is None or query.filter.holds(row):
                page.rows.append(row)
        return False

    async def _read_part(self, request: pb.GetRangeRequest) -> tuple[Any, list[RowDict]]:
        """Return one answer and its rows, the last one whole."""
        answer = await self.call("GetRange", request)
        rows = [newest(row) for row in plainbuffer.decode_rows(answer.rows)]
        last = answer
        while rows and last.next_token:
            # A row larger than an answer comes in parts. COLUMNS_SHOWN bounds their number.
            more = pb.GetRangeRequest()
            more.CopyFrom(request)
            more.inclusive_start_primary_key = last.next_start_primary_key
            more.token, more.limit = last.next_token, 1
            last = await self.call("GetRange", more)
            for part in plainbuffer.decode_rows(last.rows):
                rows[-1] = rows[-1] | newest(part)
            answer.next_start_primary_key = last.next_start_primary_key
        return answer, rows

    def _range_request(self, query: RowQuery) -> pb.GetRangeRequest:
        start, end = self._bounds(query)
        request = pb.GetRangeRequest(
            table_name=self._shape.name,
            direction=pb.BACKWARD if query.is_reverse else pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=query.at or encode_row(start),
            exclusive_end_primary_key=encode_row(end),
        )
        if query.filter is not None:
            request.columns_to_get.extend([*self._shape.key, *query.filter.columns])
        else:
            self._choose_columns(request, query)
        return request

    def _choose_columns(self, request: Any, query: RowQuery) -> None:
        """Ask for the columns that are shown, and one more that says whether there are more."""
        if query.columns:
            request.columns_to_get.extend([*self._shape.key, *query.columns])
        else:
            count = COLUMNS_SHOWN + 1 + len(self._shape.hidden)
            request.filter = ColumnPage(limit=count).encode()

    async def _read_matches(self, query: RowQuery, matches: list[RowDict]) -> list[RowDict]:
        """Return the rows that a filter found, with the columns that are shown."""
        if not matches:
            return []
        keys = [encode_row([(name, row[name]) for name in self._shape.key]) for row in matches]
        table = pb.TableInBatchGetRowRequest(
            table_name=self._shape.name, primary_key=keys, token=[b""] * len(keys), max_versions=1
        )
        self._choose_columns(table, query)
        answer = await self.call("BatchGetRow", pb.BatchGetRowRequest(tables=[table]))
        found = answer.tables[0].rows
        return [
            match | (newest(plainbuffer.decode_row(one.row)) if one.is_ok and one.row else {})
            for match, one in zip(matches, found, strict=True)
        ]

    def _bounds(self, query: RowQuery) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Return the inclusive start and the exclusive end of a range, in its direction."""
        low_rest, high_rest = INF_MIN, INF_MIN if query.end else INF_MAX
        low, high = query.prefix or query.start, query.prefix or query.end
        if query.prefix:
            high_rest = INF_MAX
        if not query.is_reverse:
            return self._fill_bound(low, low_rest), self._fill_bound(high, high_rest)
        if len(low) == len(self._shape.key):
            low = low[:-1]  # An end is exclusive; `_is_below` knows the exact one.
        return self._fill_bound(high, high_rest), self._fill_bound(low, low_rest)

    def _fill_bound(self, bound: Sequence[Scalar], rest: Special) -> list[tuple[str, Any]]:
        values = [*bound, *[rest] * (len(self._shape.key) - len(bound))]
        return list(zip(self._shape.key, values, strict=True))

    def _is_below(self, query: RowQuery, row: RowDict) -> bool:
        """True if a range that is read downwards has passed its exact start."""
        if not query.is_reverse or len(query.start) < len(self._shape.key):
            return False
        return self._order(row) < key_order.encode(map(variant.encode, query.start))

    def _is_at_end(self, query: RowQuery, row: RowDict) -> bool:
        """True for the exact end, with which a range that is read downwards begins."""
        if not query.is_reverse or len(query.end) < len(self._shape.key):
            return False
        return self._order(row) == key_order.encode(map(variant.encode, query.end))

    def _order(self, row: RowDict) -> bytes:
        return key_order.encode(variant.encode(row[name]) for name in self._shape.key)
