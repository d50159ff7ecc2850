"""Changes of a table over the Stream API. It needs an endpoint and a key pair, from anywhere.

The worker that serves a shard evaluates filter and projection. It delays the answer until there is
a change to return. Both use request fields of ours, which SDKs never send.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.client.endpoint import Endpoint
from rowtide.client.kept_columns import read_kept_columns
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.operations import READ_ROWS, READ_ROWS_KEYS_MAX
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.change import (
    DELETE,
    PUT_ROW,
    ROW,
    UPDATE,
    Change,
    ChangeParts,
    ChangeTable,
    Kind,
    WireChange,
)
from rowtide.core.records.position import decode_position
from rowtide.core.values import key, variant
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Rejected

__all__ = ["ApiSource", "ChangeStream", "CurrentRow"]

_KINDS: dict[int, Kind] = {pb.PUT_ROW: PUT_ROW, pb.UPDATE_ROW: UPDATE, pb.DELETE_ROW: DELETE}


class ChangeStream(NamedTuple):
    """A table and one period in which its stream is enabled."""

    id: str
    enabled_at_us: int
    table: ChangeTable


class CurrentRow(NamedTuple):
    """A row as of ``stamp``: its newest cells, or None. ``too_large``: it fits no answer."""

    cells: Sequence[Cell] | None
    stamp: int
    too_large: bool = False


class ApiSource:
    """The stream of ``table``. Each change has all columns, or only ``columns``.

    ``filter`` is an encoded ``Filter`` message, as reads take it. It is applied to the change
    before columns are removed.
    """

    def __init__(
        self, endpoint: Endpoint, table: str, *, columns: Sequence[str] = (), filter: bytes = b""
    ) -> None:
        self.endpoint = endpoint
        self.columns = tuple(columns)
        self.filter = filter
        self._table = table
        self._stream: ChangeStream | None = None

    async def stream(self) -> ChangeStream:
        """Return the stream as of the first call. Raises OTSObjectNotExist."""
        if self._stream is None:
            describe = pb.DescribeTableRequest(table_name=self._table)
            described = await self.endpoint.call(
                "DescribeTable", describe, pb.DescribeTableResponse
            )
            list_streams = pb.ListStreamRequest(table_name=self._table)
            streams = await self.endpoint.call("ListStream", list_streams, pb.ListStreamResponse)
            if not streams.streams:
                raise Rejected("OTSObjectNotExist", f"Table '{self._table}' has no stream.")
            names = tuple(column.name.encode() for column in described.table_meta.primary_key)
            stream = streams.streams[0]
            table = ChangeTable(self._table, names)
            self._stream = ChangeStream(stream.stream_id, stream.creation_time, table)
        return self._stream

    async def table_name(self) -> str:
        """Return the table's name."""
        return self._table

    async def now_us(self) -> int:
        """Return the server's time in Unix microseconds."""
        await self.endpoint.call("ListStream", pb.ListStreamRequest(), pb.ListStreamResponse)
        return self.endpoint.answered_us

    async def shards(self) -> list[SourceShard]:
        """Return the shards, see ``ChangeSource.shards``."""
        request = pb.DescribeStreamRequest(stream_id=(await self.stream()).id, want_ranges=True)
        found: list[SourceShard] = []
        while True:
            answer = await self.endpoint.call("DescribeStream", request, pb.DescribeStreamResponse)
            for shard in answer.shards:
                parents = [name for name in (shard.parent_id, shard.parent_sibling_id) if name]
                found.append(SourceShard(shard.shard_id, tuple(parents), shard.begin, shard.end))
            if not answer.next_shard_id:
                return found
            request.inclusive_start_shard_id = answer.next_shard_id

    async def position(self, shard_id: str, since_us: int | None) -> str:
        """Return a position, see ``ChangeSource.position``."""
        request = pb.GetShardIteratorRequest(
            stream_id=(await self.stream()).id, shard_id=shard_id, timestamp=since_us
        )
        answer = await self.endpoint.call("GetShardIterator", request, pb.GetShardIteratorResponse)
        return answer.shard_iterator

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        """Return changes, see ``ChangeSource.read``."""
        table = (await self.stream()).table
        request = pb.GetStreamRecordRequest(
            shard_iterator=position,
            limit=limit,
            want_places=True,
            want_kept=True,
            columns_to_get=self.columns,
            filter=self.filter or None,
            wait_ms=int(wait_s * 1000),
        )
        answer = await self.endpoint.call("GetStreamRecord", request, pb.GetStreamRecordResponse)
        changes = list(_changes(answer, table, decode_position(position).shard_id))
        return ChangePage(
            changes, answer.next_shard_iterator or None, not changes and not answer.may_more_record
        )

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        """Return rows, see ``ChangeSource.rows``."""
        table = (await self.stream()).table
        names = table.key_names
        request = pb.GetRangeRequest(
            table_name=self._table,
            direction=pb.FORWARD,
            max_versions=1,
            limit=limit,
            inclusive_start_primary_key=_encode_bound(names, begin, variant.V_INF_MIN),
            exclusive_end_primary_key=_encode_bound(
                names, end, variant.V_INF_MIN if end else variant.V_INF_MAX
            ),
            exact_in_shard=shard_id,
            filter=self.filter or None,
        )
        if self.columns and not self.filter:
            # Read the key's columns too, so that a row without the others is found. A read's filter
            # sees only the columns that are read: with a filter, read all columns.
            request.columns_to_get.extend([*(name.decode() for name in names), *self.columns])
        answer = await self.endpoint.call("GetRange", request, pb.GetRangeResponse)
        if answer.next_token:
            raise Rejected(
                "OTSOutOfRowSizeLimit",
                f"A row of table '{self._table}' does not fit one answer: no snapshot has it.",
            )
        rows = [self._row(row, table, shard_id, answer.commit_stamp) for row in _rows(answer.rows)]
        following = None
        if answer.next_start_primary_key:
            following = _encode_key(plainbuffer.decode_row(answer.next_start_primary_key))
        return RowPage(rows, answer.commit_stamp, following)

    async def first_and_last(self) -> tuple[bytes, bytes]:
        """Return the encoded keys of the table's first and last row; both empty without rows."""
        names = (await self.stream()).table.key_names
        low, high = (
            _encode_bound(names, b"", variant.V_INF_MIN),
            _encode_bound(names, b"", variant.V_INF_MAX),
        )
        found: list[bytes] = []
        for direction, start, end in ((pb.FORWARD, low, high), (pb.BACKWARD, high, low)):
            request = pb.GetRangeRequest(
                table_name=self._table,
                direction=direction,
                max_versions=1,
                limit=1,
                columns_to_get=[names[0].decode()],
                inclusive_start_primary_key=start,
                exclusive_end_primary_key=end,
            )
            answer = await self.endpoint.call("GetRange", request, pb.GetRangeResponse)
            found += [_encode_key(row) for row in _rows(answer.rows)] or [b""]
        return found[0], found[1]

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        """Return the current rows of encoded keys, each as of a commit stamp of its shard.

        The stamp is at least that of every change of the key that the API has returned. A reader of
        the logs may already have a change that the shard has not applied yet.
        """
        table = (await self.stream()).table
        columns = [name.decode() for name in table.key_names] if self.columns else []
        found: dict[bytes, CurrentRow] = {}
        left = sorted(keys)
        while left:
            request = pb.ReadRowsRequest(
                table_name=self._table,
                keys=left[:READ_ROWS_KEYS_MAX],
                columns_to_get=[*columns, *self.columns],
            )
            answer = await self.endpoint.call(READ_ROWS, request, pb.ReadRowsResponse)
            too_large = set(answer.too_large)
            for number, (encoded, row) in enumerate(zip(left, answer.rows, strict=False)):
                cells = plainbuffer.decode_row(row).cells if row else None
                found[encoded] = CurrentRow(cells, answer.commit_stamp, number in too_large)
            left = left[len(answer.rows) :]
        return found

    def _row(
        self, row: plainbuffer.RowChange, table: ChangeTable, shard_id: str, stamp: int
    ) -> Change:
        wanted = {name.encode() for name in self.columns}
        cells = [cell for cell in row.cells if not wanted or cell.name in wanted]
        parts = ChangeParts([value for _, value in row.key], cells, None)
        return Change.of(ROW, table, shard_id, stamp, parts)

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        """Do nothing: no one watches a consumer over the API."""


def _changes(
    answer: pb.GetStreamRecordResponse, table: ChangeTable, shard_id: str
) -> Iterator[Change]:
    for record, stamp, sequence in zip(
        answer.stream_records, answer.stamps, answer.sequences, strict=True
    ):
        yield WireChange(
            _KINDS[record.action_type],
            table,
            shard_id,
            sequence,
            stamp,
            row=record.record,
            before=record.origin_record,
            kept=read_kept_columns(record),
        )


def _rows(buffer: bytes) -> list[plainbuffer.RowChange]:
    return plainbuffer.decode_rows(buffer) if buffer else []


def _encode_bound(names: Sequence[bytes], encoded: bytes, rest: bytes) -> bytes:
    """Return a bound of a range as a request has it, with ``rest`` for missing key columns."""
    values = key.decode(encoded)
    values += [rest] * (len(names) - len(values))
    return plainbuffer.HEADER + plainbuffer.encode_row(list(zip(names, values, strict=True)), [])


def _encode_key(row: plainbuffer.RowChange) -> bytes:
    return key.encode([value for _, value in row.key])
