"""Requests that create tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant

__all__ = ["TWO_COLUMNS", "create_request"]

TWO_COLUMNS = (("PK1", pb.STRING), ("PK2", pb.INTEGER))
"""The key of most tables of the tests."""


def create_request(
    name: str,
    key: Iterable[tuple[str, Any]] = TWO_COLUMNS,
    *,
    defined: Iterable[tuple[str, Any]] = (),
    cuts: Sequence[Any] = (),
    **fields: Any,
) -> pb.CreateTableRequest:
    """Return a CreateTable without reserved units. Key and ``defined`` columns are names with
    types; ``cuts`` are the first key values at which shards begin; ``fields`` are further fields
    of the message, or replace those here."""
    meta = pb.TableMeta(
        table_name=name,
        primary_key=[pb.PrimaryKeySchema(name=column, type=kind) for column, kind in key],
        defined_column=[pb.DefinedColumnSchema(name=column, type=kind) for column, kind in defined],
    )
    units = pb.CapacityUnit(read=0, write=0)
    fields_set = {
        "table_meta": meta,
        "reserved_throughput": pb.ReservedThroughput(capacity_unit=units),
        "partitions": _partitions(cuts),
    }
    return pb.CreateTableRequest(**{**fields_set, **fields})


def _partitions(cuts: Sequence[Any]) -> list[pb.PartitionRange]:
    if not cuts:
        return []
    points = [variant.V_INF_MIN, *map(variant.encode, cuts), variant.V_INF_MAX]
    return [pb.PartitionRange(begin=begin, end=end) for begin, end in pairwise(points)]
