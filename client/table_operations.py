"""Operations on tables, their defined columns and their indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rowtide.client.operations import Operations, Steps, call
from rowtide.client.table_requests import (
    ColumnType,
    SecondaryIndex,
    TableDescription,
    column_messages,
    describe,
    index_message,
    update_request,
)
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected

__all__ = [
    "add_columns",
    "create_index",
    "create_table",
    "delete_columns",
    "delete_table",
    "describe_table",
    "drop_index",
    "list_tables",
    "update_table",
]


def create_table(
    operations: Operations, request: pb.CreateTableRequest, *, if_missing: bool
) -> Steps[bool]:
    """Create a table; return False if it exists, which ``if_missing`` allows."""
    operations.forget(request.table_meta.table_name)
    try:
        yield from call("CreateTable", request, pb.CreateTableResponse)
    except Rejected as error:
        if if_missing and error.code == "OTSObjectAlreadyExist":
            return False
        raise
    return True


def list_tables() -> Steps[list[str]]:
    """Return the names of the instance's tables."""
    answer = yield from call("ListTable", pb.ListTableRequest(), pb.ListTableResponse)
    return list(answer.table_names)


def describe_table(table: str) -> Steps[TableDescription]:
    """Return a table's description."""
    request = pb.DescribeTableRequest(table_name=table)
    return describe((yield from call("DescribeTable", request, pb.DescribeTableResponse)))


def update_table(
    table: str,
    *,
    max_versions: int | None,
    time_to_live_s: int | None,
    stream_hours: int | None,
) -> Steps[None]:
    """Change the given options of a table."""
    request = update_request(
        table,
        max_versions=max_versions,
        time_to_live_s=time_to_live_s,
        stream_hours=stream_hours,
    )
    yield from call("UpdateTable", request, pb.UpdateTableResponse)


def delete_table(operations: Operations, table: str) -> Steps[None]:
    """Delete a table."""
    operations.forget(table)
    request = pb.DeleteTableRequest(table_name=table)
    yield from call("DeleteTable", request, pb.DeleteTableResponse)


def create_index(table: str, index: SecondaryIndex, *, with_existing_rows: bool) -> Steps[None]:
    """Create an index of a table."""
    request = pb.CreateIndexRequest(
        main_table_name=table,
        index_meta=index_message(index),
        include_base_data=with_existing_rows,
    )
    yield from call("CreateIndex", request, pb.CreateIndexResponse)


def drop_index(operations: Operations, table: str, name: str) -> Steps[None]:
    """Drop an index."""
    operations.forget(name)
    request = pb.DropIndexRequest(main_table_name=table, index_name=name)
    yield from call("DropIndex", request, pb.DropIndexResponse)


def add_columns(table: str, columns: Mapping[str, ColumnType]) -> Steps[None]:
    """Define columns."""
    request = pb.AddDefinedColumnRequest(table_name=table, columns=column_messages(columns))
    yield from call("AddDefinedColumn", request, pb.AddDefinedColumnResponse)


def delete_columns(table: str, names: Sequence[str]) -> Steps[None]:
    """Make defined columns ordinary columns again."""
    request = pb.DeleteDefinedColumnRequest(table_name=table, columns=names)
    yield from call("DeleteDefinedColumn", request, pb.DeleteDefinedColumnResponse)
