"""Changes of a table over the Stream API: from anywhere, with an endpoint and a key pair.

The worker that serves a shard evaluates filter and projection, and holds a request back until there
is something to answer (fields of ours, which SDKs never send).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.client.endpoint import Endpoint
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
    """A table and one life of its stream."""

    id: str
    enabled_at_us: int
    table: ChangeTable


class CurrentRow(NamedTuple):
    """A row as of ``stamp``: its newest cells, None where there is none; or it fits no answer."""

    cells: Sequence[Cell] | None
    stamp: int
    too_large: bool = False


class ApiSource:
    """The stream of ``table``: of each change the ``columns`` named, or all.

    ``filter`` is a filter as reads take it (an encoded ``Filter`` message); it sees what the change
    says, before columns are left out.
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
        """Return the stream as it was when first asked. Raises OTSObjectNotExist."""
        if self._stream is None:
            asked = pb.DescribeTableRequest(table_name=self._table)
            told = await self.endpoint.call("DescribeTable", asked, pb.DescribeTableResponse)
            found = pb.ListStreamRequest(table_name=self._table)
            streams = await self.endpoint.call("ListStream", found, pb.ListStreamResponse)
            if not streams.streams:
                raise Rejected("OTSObjectNotExist", f"Table '{self._table}' has no stream.")
            names = tuple(column.name.encode() for column in told.table_meta.primary_key)
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
            told = await self.endpoint.call("DescribeStream", request, pb.DescribeStreamResponse)
            for shard in told.shards:
                parents = [name for name in (shard.parent_id, shard.parent_sibling_id) if name]
                found.append(SourceShard(shard.shard_id, tuple(parents), shard.begin, shard.end))
            if not told.next_shard_id:
                return found
            request.inclusive_start_shard_id = told.next_shard_id

    async def position(self, shard_id: str, since_us: int | None) -> str:
        """Return a position, see ``ChangeSource.position``."""
        request = pb.GetShardIteratorRequest(
            stream_id=(await self.stream()).id, shard_id=shard_id, timestamp=since_us
        )
        answer = pb.GetShardIteratorResponse
        return (await self.endpoint.call("GetShardIterator", request, answer)).shard_iterator

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        """Return changes, see ``ChangeSource.read``."""
        table = (await self.stream()).table
        request = pb.GetStreamRecordRequest(
            shard_iterator=position,
            limit=limit,
            want_places=True,
            columns_to_get=self.columns,
            filter=self.filter or None,
            wait_ms=int(wait_s * 1000),
        )
        answer = pb.GetStreamRecordResponse
        told = await self.endpoint.call("GetStreamRecord", request, answer)
        changes = list(_changes(told, table, decode_position(position).shard_id))
        return ChangePage(
            changes, told.next_shard_iterator or None, not changes and not told.may_more_record
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
            inclusive_start_primary_key=_bound(names, begin, variant.V_INF_MIN),
            exclusive_end_primary_key=_bound(
                names, end, variant.V_INF_MIN if end else variant.V_INF_MAX
            ),
            exact_in_shard=shard_id,
            filter=self.filter or None,
        )
        if self.columns and not self.filter:
            # With the key's columns: a row that has none of the others is a row all the same. A
            # read's filter sees no more than the columns that are read, so with one all are.
            request.columns_to_get.extend([*(name.decode() for name in names), *self.columns])
        told = await self.endpoint.call("GetRange", request, pb.GetRangeResponse)
        if told.next_token:
            raise Rejected(
                "OTSOutOfRowSizeLimit",
                f"A row of table '{self._table}' does not fit one answer: no snapshot has it.",
            )
        rows = [self._row(row, table, shard_id, told.commit_stamp) for row in _rows(told.rows)]
        following = None
        if told.next_start_primary_key:
            following = _encoded(plainbuffer.decode_row(told.next_start_primary_key))
        return RowPage(rows, told.commit_stamp, following)

    async def first_and_last(self) -> tuple[bytes, bytes]:
        """Return the encoded keys of the table's first and last row; empty where it has none."""
        names = (await self.stream()).table.key_names
        low, high = _bound(names, b"", variant.V_INF_MIN), _bound(names, b"", variant.V_INF_MAX)
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
            told = await self.endpoint.call("GetRange", request, pb.GetRangeResponse)
            found += [_encoded(row) for row in _rows(told.rows)] or [b""]
        return found[0], found[1]

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        """Return what the rows of encoded keys are now, each as of a commit stamp of its shard.

        The stamp is not below that of any change of the key that the API gave before. Who reads
        the logs themselves may have one that its shard has not applied yet.
        """
        table = (await self.stream()).table
        columns = [name.decode() for name in table.key_names] if self.columns else []
        found: dict[bytes, CurrentRow] = {}
        left = sorted(keys)
        while left:
            asked = pb.ReadRowsRequest(
                table_name=self._table,
                keys=left[:READ_ROWS_KEYS_MAX],
                columns_to_get=[*columns, *self.columns],
            )
            told = await self.endpoint.call(READ_ROWS, asked, pb.ReadRowsResponse)
            too_large = set(told.too_large)
            for number, (encoded, row) in enumerate(zip(left, told.rows, strict=False)):
                cells = plainbuffer.decode_row(row).cells if row else None
                found[encoded] = CurrentRow(cells, told.commit_stamp, number in too_large)
            left = left[len(told.rows) :]
        return found

    def _row(
        self, row: plainbuffer.RowChange, table: ChangeTable, shard_id: str, stamp: int
    ) -> Change:
        wanted = {name.encode() for name in self.columns}
        cells = [cell for cell in row.cells if not wanted or cell.name in wanted]
        parts = ChangeParts([value for _, value in row.key], cells, None)
        return Change.of(ROW, table, shard_id, stamp, parts)

    async def finished(self, consumer: str, positions: Sequence[str]) -> None:
        """Nobody watches."""


def _changes(
    told: pb.GetStreamRecordResponse, table: ChangeTable, shard_id: str
) -> Iterator[Change]:
    for record, stamp, sequence in zip(
        told.stream_records, told.stamps, told.sequences, strict=True
    ):
        yield WireChange(
            _KINDS[record.action_type],
            table,
            shard_id,
            sequence,
            stamp,
            row=record.record,
            before=record.origin_record,
        )


def _rows(buffer: bytes) -> list[plainbuffer.RowChange]:
    return plainbuffer.decode_rows(buffer) if buffer else []


def _bound(names: Sequence[bytes], encoded: bytes, rest: bytes) -> bytes:
    """Return a bound of a range as a request has it; columns that it lacks are ``rest``."""
    values = key.decode(encoded)
    values += [rest] * (len(names) - len(values))
    return plainbuffer.HEADER + plainbuffer.encode_row(list(zip(names, values, strict=True)), [])


def _encoded(row: plainbuffer.RowChange) -> bytes:
    return key.encode([value for _, value in row.key])
