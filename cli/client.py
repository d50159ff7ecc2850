"""A small client of the protocol: one connection, one call at a time.

It serves the command line, and covers what the official SDKs lack, mainly the Stream API. It does
not retry: after ``NoAnswer`` a write may have been applied or not, and only the caller knows if it
can be repeated. A ``ProtocolClient`` belongs to one thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeVar

from google.protobuf.message import Message

from rowtide.cli.call_failures import NoAnswer, NotConnected, ServerError
from rowtide.client.answer_failure import failure_of_answer
from rowtide.client.blocking_endpoint import BlockingEndpoint
from rowtide.client.kept_columns import read_kept_columns
from rowtide.client.wire_row import (
    Change,
    Changed,
    Key,
    Put,
    Row,
    Special,
    change_of,
    encode_row,
    row_of,
)
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.operations import is_read_only
from rowtide.core.protocol.signed_request import Access, sign_headers
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.kept import cells_after
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.core.values.schema import KeyColumn

__all__ = [
    "Access",
    "Expect",
    "NoAnswer",
    "NotConnected",
    "ProtocolClient",
    "ServerError",
    "StreamPage",
    "StreamRecord",
    "Write",
    "sign_headers",
]

Expect = Literal["IGNORE", "EXPECT_EXIST", "EXPECT_NOT_EXIST"]
Kind = Literal["PUT", "UPDATE", "DELETE"]
Answer = TypeVar("Answer", bound=Message)


class Write(NamedTuple):
    """One row of a batch; a DELETE has no changes, a PUT only puts."""

    kind: Kind
    key: Key
    changes: Sequence[Change] = ()
    expect: Expect = "IGNORE"


class StreamRecord(NamedTuple):
    """One change of the stream. ``original`` has the original columns if the stream keeps them.

    ``after`` has them after the change. ``existed``: the row existed before it. Both are None also
    for a record of an earlier schema.
    """

    kind: Kind
    row: Changed
    original: Row | None
    after: Row | None = None
    existed: bool | None = None


class StreamPage(NamedTuple):
    """The result of one read; without ``next_iterator`` the shard has ended and is read."""

    records: list[StreamRecord]
    next_iterator: str | None


class ProtocolClient:
    """Calls an instance with a key pair, signed with version 2 of the protocol's signature."""

    def __init__(
        self,
        endpoint: str,
        *,
        instance: str,
        access_key_id: str,
        access_key_secret: str,
        timeout_s: float = 30.0,
    ) -> None:
        self._endpoint = BlockingEndpoint(
            endpoint,
            instance=instance,
            access_key_id=access_key_id,
            access_key_secret=access_key_secret,
            timeout_s=timeout_s,
        )
        self.endpoint = endpoint
        self.access = self._endpoint.access
        self.changed = False
        """True once a call succeeded that may have changed something."""
        self.max_staleness_ms: int | None = None
        """Maximal age of reads; None: every read sees all earlier writes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._endpoint.close()

    def call(self, operation: str, request: Message, answer: type[Answer]) -> Answer:
        """Send one request and return its parsed answer.

        Raises ``ServerError`` for an error answer and ``NoAnswer`` if no answer came.
        """
        return answer.FromString(self._exchange(operation, request.SerializeToString()))

    def call_json(self, operation: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Call one of rowtide's own operations, which use JSON. Raises what ``call`` raises."""
        answer: dict[str, Any] = json.loads(self._exchange(operation, json.dumps(fields).encode()))
        return answer

    def _exchange(self, operation: str, body: bytes) -> bytes:
        more = {}
        if self.max_staleness_ms is not None:
            more[b"x-ots-max-staleness-ms"] = b"%d" % self.max_staleness_ms
        try:
            answer = self._endpoint.send(operation, body, more)
        except Unavailable as error:
            raise NotConnected(error.message) from error
        except OutcomeUnknown as error:
            raise NoAnswer(error.message) from error
        if answer.status != 200:
            failure = failure_of_answer(answer)
            raise ServerError(failure.code, failure.message, answer.status, failure.request_id)
        self.changed = self.changed or not is_read_only(operation)
        return answer.content

    # ---- Tables ----

    def create_table(
        self,
        table: str,
        key: Sequence[KeyColumn],
        *,
        options: pb.TableOptions | None = None,
        stream: pb.StreamSpecification | None = None,
        reserved: tuple[int, int] = (0, 0),
    ) -> None:
        """Create a table; ``reserved`` is read and write capacity units per second."""
        request = pb.CreateTableRequest(
            table_options=options or pb.TableOptions(), stream_spec=stream
        )
        request.table_meta.table_name = table
        for column in key:
            schema = request.table_meta.primary_key.add(
                name=column.name, type=pb.PrimaryKeyType.Name(column.type)
            )
            if column.auto_increment:
                schema.option = pb.AUTO_INCREMENT
        request.reserved_throughput.CopyFrom(_reservation(reserved))
        self.call("CreateTable", request, pb.CreateTableResponse)

    def update_table(
        self,
        table: str,
        *,
        options: pb.TableOptions | None = None,
        stream: pb.StreamSpecification | None = None,
        reserved: tuple[int, int] | None = None,
    ) -> pb.UpdateTableResponse:
        """Change the given options."""
        request = pb.UpdateTableRequest(table_name=table, table_options=options, stream_spec=stream)
        if reserved is not None:
            request.reserved_throughput.CopyFrom(_reservation(reserved))
        return self.call("UpdateTable", request, pb.UpdateTableResponse)

    def delete_table(self, table: str) -> None:
        """Delete a table with its rows and its stream."""
        self.call("DeleteTable", pb.DeleteTableRequest(table_name=table), pb.DeleteTableResponse)

    def list_table(self) -> list[str]:
        """Return the names of the instance's tables."""
        return list(self.call("ListTable", pb.ListTableRequest(), pb.ListTableResponse).table_names)

    def describe_table(self, table: str) -> pb.DescribeTableResponse:
        """Return a table's key, options, stream and capacity."""
        request = pb.DescribeTableRequest(table_name=table)
        return self.call("DescribeTable", request, pb.DescribeTableResponse)

    # ---- Rows ----

    def put_row(
        self, table: str, key: Key, puts: Sequence[Put], *, expect: Expect = "IGNORE"
    ) -> Key:
        """Replace a row; return its key, with an assigned column."""
        request = pb.PutRowRequest(
            table_name=table,
            row=encode_row(key, puts),
            condition=pb.Condition(row_existence=expect),
        )
        assigned = any(value is Special.AUTO_INCREMENT for _, value in key)
        if assigned:
            request.return_content.return_type = pb.RT_PK
        answer = self.call("PutRow", request, pb.PutRowResponse)
        return row_of(plainbuffer.decode_row(answer.row)).key if assigned else key

    def update_row(
        self, table: str, key: Key, changes: Sequence[Change], *, expect: Expect = "IGNORE"
    ) -> None:
        """Change a row's columns; create the row if it is absent."""
        request = pb.UpdateRowRequest(
            table_name=table,
            row_change=encode_row(key, changes),
            condition=pb.Condition(row_existence=expect),
        )
        self.call("UpdateRow", request, pb.UpdateRowResponse)

    def delete_row(self, table: str, key: Key, *, expect: Expect = "IGNORE") -> None:
        """Delete a row."""
        request = pb.DeleteRowRequest(
            table_name=table,
            primary_key=encode_row(key, deleted=True),
            condition=pb.Condition(row_existence=expect),
        )
        self.call("DeleteRow", request, pb.DeleteRowResponse)

    def get_row(
        self, table: str, key: Key, *, columns: Sequence[str] = (), versions: int = 1
    ) -> Row | None:
        """Return a row, or None if it is absent."""
        request = pb.GetRowRequest(
            table_name=table,
            primary_key=encode_row(key),
            columns_to_get=columns,
            max_versions=versions,
        )
        answer = self.call("GetRow", request, pb.GetRowResponse)
        return row_of(plainbuffer.decode_row(answer.row)) if answer.row else None

    def get_range(
        self, table: str, start: Key, end: Key, *, page: pb.GetRangeRequest | None = None
    ) -> Iterator[list[Row]]:
        """Yield the rows from ``start`` on and before ``end``, one page per answer.

        ``page`` has the way to read: direction, columns_to_get, max_versions (default 1), and a
        limit of rows per page.
        """
        request = pb.GetRangeRequest(direction=pb.FORWARD, max_versions=1)
        request.MergeFrom(page or request)
        request.table_name = table
        request.inclusive_start_primary_key = encode_row(start)
        request.exclusive_end_primary_key = encode_row(end)
        while True:
            answer = self.call("GetRange", request, pb.GetRangeResponse)
            yield [row_of(row) for row in plainbuffer.decode_rows(answer.rows)]
            if not answer.next_start_primary_key:
                return
            request.inclusive_start_primary_key = answer.next_start_primary_key
            request.token = answer.next_token

    def batch_write_row(self, writes: Mapping[str, Sequence[Write]]) -> list[ServerError | None]:
        """Write rows of several tables; the result has one entry per row, in order."""
        request = pb.BatchWriteRowRequest()
        for table, rows in writes.items():
            part = request.tables.add(table_name=table)
            for write in rows:
                part.rows.add(
                    type=write.kind,
                    row_change=encode_row(write.key, write.changes, deleted=write.kind == "DELETE"),
                    condition=pb.Condition(row_existence=write.expect),
                )
        answer = self.call("BatchWriteRow", request, pb.BatchWriteRowResponse)
        return [
            None if row.is_ok else ServerError(row.error.code, row.error.message, 200, "")
            for part in answer.tables
            for row in part.rows
        ]

    # ---- Streams ----

    def list_stream(self, table: str | None = None) -> list[pb.Stream]:
        """Return the streams of a table, or of the whole instance."""
        request = pb.ListStreamRequest(table_name=table)
        return list(self.call("ListStream", request, pb.ListStreamResponse).streams)

    def describe_stream(self, stream_id: str) -> pb.DescribeStreamResponse:
        """Return a stream with all its shards, from as many answers as needed."""
        request = pb.DescribeStreamRequest(stream_id=stream_id)
        whole = answer = self.call("DescribeStream", request, pb.DescribeStreamResponse)
        while answer.next_shard_id:
            request.inclusive_start_shard_id = answer.next_shard_id
            answer = self.call("DescribeStream", request, pb.DescribeStreamResponse)
            whole.shards.extend(answer.shards)
        return whole

    def get_shard_iterator(
        self, stream_id: str, shard_id: str, *, timestamp_us: int | None = None
    ) -> str:
        """Return a position: the oldest record kept, or the first since a time."""
        request = pb.GetShardIteratorRequest(
            stream_id=stream_id, shard_id=shard_id, timestamp=timestamp_us
        )
        return self.call("GetShardIterator", request, pb.GetShardIteratorResponse).shard_iterator

    def get_stream_record(self, iterator: str, *, limit: int | None = None) -> StreamPage:
        """Return the records from a position on; empty if there are no new ones."""
        request = pb.GetStreamRecordRequest(shard_iterator=iterator, limit=limit, want_kept=True)
        answer = self.call("GetStreamRecord", request, pb.GetStreamRecordResponse)
        return StreamPage(
            [_stream_record(record) for record in answer.stream_records],
            answer.next_shard_iterator or None,
        )


def _reservation(units: tuple[int, int]) -> pb.ReservedThroughput:
    return pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=units[0], write=units[1]))


_KIND: dict[int, Kind] = {pb.PUT_ROW: "PUT", pb.UPDATE_ROW: "UPDATE", pb.DELETE_ROW: "DELETE"}


def _stream_record(record: pb.GetStreamRecordResponse.StreamRecord) -> StreamRecord:
    kind, row = _KIND[record.action_type], plainbuffer.decode_row(record.record)
    original = plainbuffer.decode_row(record.origin_record) if record.origin_record else None
    kept = read_kept_columns(record)
    shown = StreamRecord(kind, change_of(row), row_of(original) if original else None)
    if original is None or kept is None:
        return shown
    after = cells_after(original.cells, kept, row.cells, whole=kind != "UPDATE")
    row_after = row_of(row._replace(cells=[*after.values()]))
    return shown._replace(after=row_after, existed=kept.existed)
