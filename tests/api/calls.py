"""Requests as exact messages, answers and refusals as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf.message import Message

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Change, Key, Put, Row, Special, encode_row, row_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = [
    "INF_MAX",
    "INF_MIN",
    "ask",
    "batch_get",
    "batch_write",
    "delete",
    "get",
    "get_range",
    "key",
    "outcomes",
    "put",
    "puts",
    "read_row",
    "refusal",
    "rows",
    "shown",
    "units",
    "update",
]

INF_MIN, INF_MAX = Special.INF_MIN, Special.INF_MAX
OK = "ok"


def ask(client: ProtocolClient, request: Message) -> Any:
    """Send a request under the operation its type is named after; return the parsed answer."""
    operation = type(request).__name__.removesuffix("Request")
    return client.call(operation, request, getattr(pb, f"{operation}Response"))


def refusal(client: ProtocolClient, request: Message) -> str:
    """Return a refused request's status, code and text in one line."""
    refused = None
    try:
        ask(client, request)
    except ServerError as error:
        refused = error
    if refused is None:
        return OK
    assert len(refused.request_id) == 36, "an error without its request id"
    return f"{refused.status} {refused.code} {refused.message}"


def key(*values: Any, names: Sequence[str] = ()) -> Key:
    """Return a key; its columns are PK1, PK2 ... unless named."""
    return tuple(zip(names or [f"PK{n + 1}" for n in range(len(values))], values, strict=True))


# Requests on one row. ``fields`` are further fields of the message, or replace those here.


def put(table: str, row_key: Key, changes: Iterable[Change] = (), **fields: Any) -> Any:
    """Return a PutRow of anything."""
    defaults = {
        "row": encode_row(row_key, changes),
        "condition": pb.Condition(row_existence=pb.IGNORE),
    }
    return pb.PutRowRequest(table_name=table, **{**defaults, **fields})


def update(table: str, row_key: Key, changes: Iterable[Change] = (), **fields: Any) -> Any:
    """Return an UpdateRow of anything."""
    defaults = {
        "row_change": encode_row(row_key, changes),
        "condition": pb.Condition(row_existence=pb.IGNORE),
    }
    return pb.UpdateRowRequest(table_name=table, **{**defaults, **fields})


def delete(table: str, row_key: Key, **fields: Any) -> Any:
    """Return a DeleteRow."""
    defaults = {
        "primary_key": encode_row(row_key, deleted=True),
        "condition": pb.Condition(row_existence=pb.IGNORE),
    }
    return pb.DeleteRowRequest(table_name=table, **{**defaults, **fields})


def get(table: str, row_key: Key, **fields: Any) -> Any:
    """Return a GetRow of the newest versions; ``max_versions=None`` leaves them out."""
    defaults = {"primary_key": encode_row(row_key), "max_versions": 1}
    return pb.GetRowRequest(table_name=table, **{**defaults, **fields})


def get_range(table: str, start: Key, end: Key, **fields: Any) -> Any:
    """Return a GetRange, forward by default."""
    defaults: dict[str, Any] = {
        "direction": pb.FORWARD,
        "max_versions": 1,
        "inclusive_start_primary_key": encode_row(start),
        "exclusive_end_primary_key": encode_row(end),
    }
    return pb.GetRangeRequest(table_name=table, **{**defaults, **fields})


# Requests on many rows.


def batch_write(tables: Iterable[tuple[str, Sequence[Message]]], **fields: Any) -> Any:
    """Return a BatchWriteRow made of requests on one row each."""
    request = pb.BatchWriteRowRequest(**fields)
    for table, writes in tables:
        part = request.tables.add(table_name=table)
        for write in writes:
            part.rows.append(_item(write))
    return request


def _item(write: Any) -> pb.RowInBatchWriteRowRequest:
    kind, row = {
        pb.PutRowRequest: (pb.PUT, "row"),
        pb.UpdateRowRequest: (pb.UPDATE, "row_change"),
        pb.DeleteRowRequest: (pb.DELETE, "primary_key"),
    }[type(write)]
    item = pb.RowInBatchWriteRowRequest(
        type=kind, row_change=getattr(write, row), condition=write.condition
    )
    if write.HasField("return_content"):
        item.return_content.CopyFrom(write.return_content)
    return item


def batch_get(tables: Iterable[tuple[str, Sequence[Key]]], **fields: Any) -> Any:
    """Return a BatchGetRow of the newest versions."""
    request = pb.BatchGetRowRequest()
    for table, keys in tables:
        defaults = {"primary_key": [encode_row(k) for k in keys], "max_versions": 1}
        request.tables.add(table_name=table, **{**defaults, **fields})
    return request


# Answers.


def outcomes(answer: Any) -> list[list[str]]:
    """Return what a batch says of each row, by table: ok, or the error's code and text."""
    return [
        [OK if row.is_ok else f"{row.error.code} {row.error.message}" for row in table.rows]
        for table in answer.tables
    ]


def units(answer: Any) -> tuple[int, int]:
    """Return consumed (read, write) units; both must be on the wire."""
    used = answer.consumed.capacity_unit
    assert used.HasField("read")
    assert used.HasField("write")
    return used.read, used.write


def rows(buffer: bytes) -> list[Row]:
    """Return the rows of an answer; none are zero bytes."""
    return [row_of(row) for row in plainbuffer.decode_rows(buffer)] if buffer else []


def read_row(client: ProtocolClient, table: str, row_key: Key, **fields: Any) -> Row | None:
    """Return a row as GetRow answers it, or None where it is absent."""
    found = rows(ask(client, get(table, row_key, **fields)).row)
    assert len(found) < 2
    return found[0] if found else None


def shown(row: Row | None) -> dict[str, Any] | None:
    """Return a row's newest values by column."""
    if row is None:
        return None
    values: dict[str, Any] = {}
    for name, value, _ in row.columns:
        values.setdefault(name, value)
    return values


def puts(**values: Any) -> list[Put]:
    """Return puts without versions."""
    return [Put(name, value) for name, value in values.items()]
