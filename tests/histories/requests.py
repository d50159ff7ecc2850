"""Operations of a history as requests of the protocol, and answers as what they say.

One table holds everything; it begins with a shard per letter of ``SHARDS``. The key of a row is a
letter with a generation, which is the partition key, and a small number: ``b000007/2``. So a range
over a partition key reads all its rows, in one shard.
"""

from __future__ import annotations

from rowtide.client.wire_row import Change, Increment, Key, Put, Special, encode_row, row_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.histories.operation import Kind, Operation, Row
from tests.support import tables

__all__ = [
    "ROWS",
    "SHARDS",
    "TABLE",
    "create_request",
    "increment_of",
    "key_text",
    "range_request",
    "request_of",
    "row_in",
    "rows_in",
]

TABLE = "histories"
SHARDS = "bdfhjl"
"""First letters of the shards' partition keys."""

ROWS = 4
"""Rows of a partition key: those of one range."""

_NEWEST = pb.ReturnContent(return_type=pb.RT_AFTER_MODIFY, return_column_names=["n"])


def create_request() -> pb.CreateTableRequest:
    """Return the request that makes the table, with a stream."""
    return tables.create_request(
        TABLE,
        [("name", pb.STRING), ("row", pb.INTEGER)],
        cuts=SHARDS[1:],
        table_options=pb.TableOptions(max_versions=1, time_to_live=-1),
        stream_spec=pb.StreamSpecification(enable_stream=True, expiration_time=24),
    )


def _key(text: str) -> Key:
    name, _, row = text.partition("/")
    return (("name", name), ("row", int(row)))


def key_text(key: Key) -> str:
    """Return a key as histories have it."""
    (_, name), (_, row) = key
    return f"{name!s}/{row!s}"


def request_of(one: Operation) -> tuple[str, bytes]:
    """Return the name and the body of the request that asks for an operation."""
    key = _key(one.key)
    if one.kind is Kind.GET:
        read = pb.GetRowRequest(table_name=TABLE, primary_key=encode_row(key), max_versions=1)
        return "GetRow", read.SerializeToString()
    condition = _condition(one)
    if one.kind is Kind.DELETE:
        row = encode_row(key, deleted=True)
        gone = pb.DeleteRowRequest(table_name=TABLE, primary_key=row, condition=condition)
        return "DeleteRow", gone.SerializeToString()
    changes: list[Change] = [Put("m", one.mark)]
    if one.kind is Kind.PUT:
        row = encode_row(key, [*changes, Put("n", one.number)])
        put = pb.PutRowRequest(table_name=TABLE, row=row, condition=condition)
        return "PutRow", put.SerializeToString()
    increments = one.kind is Kind.INCREMENT
    if increments:
        changes.append(Increment("n", one.number))
    update = pb.UpdateRowRequest(
        table_name=TABLE,
        row_change=encode_row(key, changes),
        condition=condition,
        return_content=_NEWEST if increments else None,
    )
    return "UpdateRow", update.SerializeToString()


def _condition(one: Operation) -> pb.Condition:
    condition = pb.Condition(row_existence=one.expect)
    if one.if_mark is not None:
        leaf = pb.SingleColumnValueFilter(
            comparator=pb.CT_EQUAL,
            column_name="m",
            column_value=variant.encode(one.if_mark),
            filter_if_missing=True,
            latest_version_only=True,
        )
        kind = pb.FT_SINGLE_COLUMN_VALUE
        column_filter = pb.Filter(type=kind, filter=leaf.SerializeToString())
        condition.column_condition = column_filter.SerializeToString()
    return condition


def range_request(name: str | None, start: bytes = b"") -> bytes:
    """Return the body of a GetRange over a partition key, or over everything."""
    low: Key = (("name", name or Special.INF_MIN), ("row", Special.INF_MIN))
    high: Key = (("name", name or Special.INF_MAX), ("row", Special.INF_MAX))
    return pb.GetRangeRequest(
        table_name=TABLE,
        direction=pb.FORWARD,
        max_versions=1,
        inclusive_start_primary_key=start or encode_row(low),
        exclusive_end_primary_key=encode_row(high),
    ).SerializeToString()


def row_in(body: bytes) -> Row:
    """Return the row of a GetRow's answer."""
    row = pb.GetRowResponse.FromString(body).row
    return next(iter(_rows(row).values())) if row else None


def increment_of(body: bytes) -> int:
    """Return the number that an increment returned."""
    [row] = plainbuffer.decode_rows(pb.UpdateRowResponse.FromString(body).row)
    [column] = row_of(row).columns
    assert isinstance(column.value, int)
    return column.value


def rows_in(body: bytes) -> tuple[dict[str, Row], bytes]:
    """Return the rows of a GetRange's answer, and where the next page begins."""
    answer = pb.GetRangeResponse.FromString(body)
    found = _rows(answer.rows) if answer.rows else {}
    return found, bytes(answer.next_start_primary_key)


def _rows(buffer: bytes) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for row in map(row_of, plainbuffer.decode_rows(buffer)):
        values = {put.name: put.value for put in row.columns}
        mark, number = values.get("m"), values.get("n")
        assert isinstance(mark, str)
        assert number is None or isinstance(number, int)
        rows[key_text(row.key)] = (mark, number)
    return rows
