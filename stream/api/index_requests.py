"""Converts the messages of secondary indexes to the catalog's objects, and back."""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import UPDATE
from rowtide.core.shard.index import (
    check_indexable,
    check_shape,
    count_named,
    find_named_key,
    key_names,
)
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import GLOBAL, LOCAL, Index, Table

__all__ = [
    "check_count",
    "check_shapes",
    "check_write",
    "index_message",
    "index_of",
    "read_only",
]


def check_count(count: int, limits: Limits) -> None:
    """Raise OTSParameterInvalid if a table would have too many indexes."""
    if count > limits.indexes_per_table_max:
        raise invalid(
            f"Number of index per table exceeds the quota:{limits.indexes_per_table_max}."
        )


def check_shapes(indexes: Sequence[pb.IndexMeta], limits: Limits) -> None:
    """Check indexes against the limits that need no table. Raises OTSParameterInvalid."""
    check_count(len(indexes), limits)
    for index in indexes:
        check_shape(index.name, index.primary_key, index.defined_column, limits)


def index_of(message: pb.IndexMeta, table: Table, *, whole: bool, building: bool) -> Index:
    """Return the requested index, without number, time and shards. Raises OTSParameterInvalid."""
    kind = LOCAL if message.index_type == pb.IT_LOCAL_INDEX else GLOBAL
    if message.name == table.name or table.index(message.name) is not None:
        raise Rejected("OTSObjectAlreadyExist", "Requested table already exists.")
    index = Index(
        name=message.name,
        table_id=0,
        kind=kind,
        key=key_names(table, message.primary_key),
        columns=tuple(message.defined_column),
        created_us=0,
        whole=whole,
        building=building,
        key_named=count_named(table, message.primary_key),
    )
    check_indexable(table, index)
    return index


def index_message(table: Table, index: Index) -> pb.IndexMeta:
    """Return an index as answers show it, with the key that its creator named."""
    local = index.kind == LOCAL
    return pb.IndexMeta(
        name=index.name,
        primary_key=find_named_key(table, index),
        defined_column=index.columns,
        index_update_mode=pb.IUM_SYNC_INDEX if local else pb.IUM_ASYNC_INDEX,
        index_type=pb.IT_LOCAL_INDEX if local else pb.IT_GLOBAL_INDEX,
        index_sync_phase=pb.ISP_FULL if index.building else pb.ISP_INCR,
    )


def read_only(table: Table) -> Rejected:
    """Return the error for a write to an index under its own name."""
    return invalid(f"Table '{table.name}' is an index: it can only be read, and dropped.")


def check_write(table: Table, kind: int) -> None:
    """Raise OTSParameterInvalid if rows of a table may not be written in this way."""
    if table.main:
        raise read_only(table)
    if kind == UPDATE and not table.options.allow_update:
        raise invalid("Update operation is not allowed in this table")
