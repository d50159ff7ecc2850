"""A table as an application creates and describes it, and the messages for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rowtide.client.row_values import AUTO_INCREMENT, TableKey
from rowtide.client.wire_row import Special
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = [
    "ColumnType",
    "KeyType",
    "SecondaryIndex",
    "TableDescription",
    "column_messages",
    "create_request",
    "describe",
    "index_message",
    "table_key",
    "update_request",
]

KeyType = type[int] | type[str] | type[bytes] | Special
"""The type of a key column. ``AUTO_INCREMENT`` is an integer that the server may assign."""

ColumnType = type[int] | type[float] | type[bool] | type[str] | type[bytes]
"""The type of a defined column."""

_Type = TypeVar("_Type")

_KEY_TYPES: dict[object, pb.PrimaryKeyType] = {
    int: pb.INTEGER,
    str: pb.STRING,
    bytes: pb.BINARY,
    AUTO_INCREMENT: pb.INTEGER,
}
_COLUMN_TYPES: dict[object, pb.DefinedColumnType] = {
    int: pb.DCT_INTEGER,
    float: pb.DCT_DOUBLE,
    bool: pb.DCT_BOOLEAN,
    str: pb.DCT_STRING,
    bytes: pb.DCT_BLOB,
}
_KEY_TYPE_OF: dict[int, KeyType] = {pb.INTEGER: int, pb.STRING: str, pb.BINARY: bytes}
_COLUMN_TYPE_OF: dict[int, ColumnType] = {
    pb.DCT_INTEGER: int,
    pb.DCT_DOUBLE: float,
    pb.DCT_BOOLEAN: bool,
    pb.DCT_STRING: str,
    pb.DCT_BLOB: bytes,
}


@dataclass(frozen=True, slots=True)
class SecondaryIndex:
    """An index of a table: the rows in the order of other columns.

    ``key`` are columns of the table's key or defined columns. ``columns`` are defined columns that
    the index stores as well. A local index is written with the row; a global index follows within
    moments. ``is_complete`` is False until the rows that existed before are in the index.
    """

    name: str
    key: Sequence[str]
    columns: Sequence[str] = ()
    is_local: bool = False
    is_complete: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table's definition. Changes are kept for ``stream_hours``; 0 without a stream."""

    name: str
    key: Mapping[str, KeyType]
    defined_columns: Mapping[str, ColumnType]
    indexes: Sequence[SecondaryIndex]
    max_versions: int
    time_to_live_s: int | None
    stream_hours: int
    created_us: int


def create_request(
    table: str,
    key: Mapping[str, KeyType],
    *,
    defined: Mapping[str, ColumnType],
    indexes: Iterable[SecondaryIndex],
    max_versions: int,
    time_to_live_s: int | None,
    stream_hours: int,
    version_deviation_s: int | None = None,
) -> pb.CreateTableRequest:
    """Return the message that creates a table. Raises ``TypeError`` for an unknown type."""
    request = pb.CreateTableRequest(
        table_options=_options(max_versions, time_to_live_s),
        stream_spec=_stream(stream_hours) if stream_hours else None,
        index_metas=[index_message(index) for index in indexes],
    )
    if version_deviation_s is not None:
        request.table_options.deviation_cell_version_in_sec = version_deviation_s
    request.reserved_throughput.capacity_unit.CopyFrom(pb.CapacityUnit(read=0, write=0))
    request.table_meta.table_name = table
    for name, kind in key.items():
        column = request.table_meta.primary_key.add(name=name, type=_number(_KEY_TYPES, name, kind))
        if kind is AUTO_INCREMENT:
            column.option = pb.AUTO_INCREMENT
    request.table_meta.defined_column.extend(column_messages(defined))
    return request


def update_request(
    table: str,
    *,
    max_versions: int | None,
    time_to_live_s: int | None,
    stream_hours: int | None,
) -> pb.UpdateTableRequest:
    """Return the message that changes the given options; a life of -1 seconds means forever."""
    request = pb.UpdateTableRequest(table_name=table)
    if max_versions is not None:
        request.table_options.max_versions = max_versions
    if time_to_live_s is not None:
        request.table_options.time_to_live = time_to_live_s
    if stream_hours is not None:
        request.stream_spec.CopyFrom(_stream(stream_hours))
    return request


def _options(max_versions: int, time_to_live_s: int | None) -> pb.TableOptions:
    life_s = -1 if time_to_live_s is None else time_to_live_s
    return pb.TableOptions(max_versions=max_versions, time_to_live=life_s)


def _stream(hours: int) -> pb.StreamSpecification:
    if not hours:
        return pb.StreamSpecification(enable_stream=False)
    return pb.StreamSpecification(enable_stream=True, expiration_time=hours)


def _number(numbers: Mapping[object, _Type], name: str, kind: object) -> _Type:
    if kind not in numbers:
        raise TypeError(f"column '{name}' has a type that no such column can have: {kind!r}")
    return numbers[kind]


def column_messages(columns: Mapping[str, ColumnType]) -> list[pb.DefinedColumnSchema]:
    """Return the messages of defined columns."""
    return [
        pb.DefinedColumnSchema(name=name, type=_number(_COLUMN_TYPES, name, kind))
        for name, kind in columns.items()
    ]


def index_message(index: SecondaryIndex) -> pb.IndexMeta:
    """Return the message of an index."""
    return pb.IndexMeta(
        name=index.name,
        primary_key=index.key,
        defined_column=index.columns,
        index_type=pb.IT_LOCAL_INDEX if index.is_local else pb.IT_GLOBAL_INDEX,
        index_update_mode=pb.IUM_SYNC_INDEX if index.is_local else pb.IUM_ASYNC_INDEX,
    )


def table_key(answer: pb.DescribeTableResponse) -> TableKey:
    """Return the key of a table or an index."""
    columns = answer.table_meta.primary_key
    auto = [column.name for column in columns if column.HasField("option")]
    return TableKey(tuple(column.name for column in columns), auto[0] if auto else None)


def describe(answer: pb.DescribeTableResponse) -> TableDescription:
    """Return the description of a table in an answer."""
    meta, options = answer.table_meta, answer.table_options
    life_s = options.time_to_live
    return TableDescription(
        name=meta.table_name,
        key={
            # Without the option the field reads as its default, AUTO_INCREMENT.
            column.name: AUTO_INCREMENT if column.HasField("option") else _KEY_TYPE_OF[column.type]
            for column in meta.primary_key
        },
        defined_columns={c.name: _COLUMN_TYPE_OF[c.type] for c in meta.defined_column},
        indexes=[_index(index) for index in answer.index_metas],
        max_versions=options.max_versions,
        time_to_live_s=None if life_s < 0 else life_s,
        stream_hours=answer.stream_details.expiration_time
        if answer.stream_details.enable_stream
        else 0,
        created_us=answer.creation_time,
    )


def _index(meta: pb.IndexMeta) -> SecondaryIndex:
    return SecondaryIndex(
        meta.name,
        tuple(meta.primary_key),
        tuple(meta.defined_column),
        is_local=meta.index_type == pb.IT_LOCAL_INDEX,
        is_complete=meta.index_sync_phase != pb.ISP_FULL,
    )
