"""Tables that rowtide creates over the protocol, for its own use or for a source's rows."""

from __future__ import annotations

from collections.abc import Iterable

from rowtide.client.endpoint import Endpoint
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["has_value", "make_table"]


async def make_table(
    endpoint: Endpoint,
    name: str,
    key: Iterable[tuple[str, int]],
    options: pb.TableOptions,
    stream: pb.StreamSpecification | None = None,
) -> None:
    """Create a table with the given key columns unless it exists. It reserves no throughput."""
    request = pb.CreateTableRequest(table_options=options, stream_spec=stream)
    request.table_meta.table_name = name
    for column, kind in key:
        request.table_meta.primary_key.add(name=column, type=pb.PrimaryKeyType.Name(kind))
    request.reserved_throughput.capacity_unit.CopyFrom(pb.CapacityUnit(read=0, write=0))
    try:
        await endpoint.call("CreateTable", request, pb.CreateTableResponse)
    except Rejected as error:
        if error.code != "OTSObjectAlreadyExist":
            raise


def has_value(column: str, value: Scalar) -> pb.Filter:
    """Return the condition that a row has a column with this value."""
    test = pb.SingleColumnValueFilter(
        comparator=pb.CT_EQUAL,
        column_name=column,
        column_value=variant.encode(value),
        filter_if_missing=True,
        latest_version_only=True,
    )
    return pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=test.SerializeToString())
