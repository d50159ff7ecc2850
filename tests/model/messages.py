"""Requests of the model's form as messages of the protocol, and answers back."""

from __future__ import annotations

from typing import Any

from rowtide.client.wire_row import Row, Special
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.api.calls import delete, key, put, rows, units, update
from tests.model.requests import (
    INT64_MAX,
    NO_KEY,
    Combined,
    Compare,
    Done,
    Found,
    Page,
    Read,
    Test,
    Write,
)

MESSAGES: dict[str, Any] = {"PUT": put, "UPDATE": update, "DELETE": delete}
COMPARATORS = {
    "EQ": pb.CT_EQUAL,
    "NE": pb.CT_NOT_EQUAL,
    "GT": pb.CT_GREATER_THAN,
    "GE": pb.CT_GREATER_EQUAL,
    "LT": pb.CT_LESS_THAN,
    "LE": pb.CT_LESS_EQUAL,
}


def filter_message(test: Test | Page) -> pb.Filter:
    """Return a test as a filter."""
    if isinstance(test, Page):
        page = pb.ColumnPaginationFilter(offset=test.offset, limit=test.limit)
        return pb.Filter(type=pb.FT_COLUMN_PAGINATION, filter=page.SerializeToString())
    if isinstance(test, Combined):
        parts = [filter_message(part) for part in test.tests]
        both = pb.CompositeColumnValueFilter(combinator=f"LO_{test.operator}", sub_filters=parts)
        return pb.Filter(type=pb.FT_COMPOSITE_COLUMN_VALUE, filter=both.SerializeToString())
    assert isinstance(test, Compare)
    single = pb.SingleColumnValueFilter(
        comparator=COMPARATORS[test.operator],
        column_name=test.column,
        column_value=variant.encode(test.value),
        filter_if_missing=not test.if_missing,
        latest_version_only=test.latest_only,
    )
    return pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=single.SerializeToString())


def write_message(table: str, write: Write, transaction_id: str | None) -> Any:
    """Return the request of one write."""
    condition = pb.Condition(row_existence=write.expect)
    if write.condition is not None:
        condition.column_condition = filter_message(write.condition).SerializeToString()
    fields: dict[str, Any] = {"condition": condition, "transaction_id": transaction_id}
    if write.returns is not None:
        kind = pb.RT_AFTER_MODIFY if write.returns else pb.RT_PK
        content = pb.ReturnContent(return_type=kind, return_column_names=write.returns)
        fields["return_content"] = content
    row_key = key(write.key[0], Special.AUTO_INCREMENT if write.assigned else write.key[1])
    if write.kind == "DELETE":
        return delete(table, row_key, **fields)
    return MESSAGES[write.kind](table, row_key, write.changes, **fields)


def read_fields(read: Read) -> dict[str, Any]:
    """Return the fields that GetRow, GetRange and BatchGetRow share."""
    fields: dict[str, Any] = {"columns_to_get": read.columns, "max_versions": None}
    if read.newest < INT64_MAX:
        fields["max_versions"] = read.newest
    if read.end_ms == read.start_ms + 1:
        fields["time_range"] = pb.TimeRange(specific_time=read.start_ms)
        fields["max_versions"] = None
    elif read.start_ms or read.end_ms < INT64_MAX or read.newest == INT64_MAX:
        fields["time_range"] = pb.TimeRange(start_time=read.start_ms, end_time=read.end_ms)
    if read.start_column:
        fields["start_column"] = read.start_column
    if read.end_column is not None:
        fields["end_column"] = read.end_column
    if read.filter is not None:
        fields["filter"] = filter_message(read.filter).SerializeToString()
    return fields


def decode_found(row: Row) -> Found:
    """Return a row of an answer."""
    if not row.key:
        return Found(NO_KEY, row.columns)
    first, second = (value for _, value in row.key)
    assert isinstance(first, str)
    assert isinstance(second, int)
    return Found((first, second), row.columns)


def all_found(buffer: bytes) -> list[Found]:
    """Return an answer's rows."""
    return [decode_found(row) for row in rows(buffer)]


def decode_done(answer: Any) -> Done:
    """Return what a write answered."""
    returned = all_found(answer.row)
    assert len(returned) < 2
    return Done(returned[0] if returned else None, *units(answer))


def next_key(buffer: bytes) -> tuple[Any, ...] | None:
    """Return the values of a following key, None where there is none."""
    if not buffer:
        return None
    return tuple(variant.decode(value) for _, value in plainbuffer.decode_row(buffer).key)
