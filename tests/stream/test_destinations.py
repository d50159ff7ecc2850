"""The slot of a request on one row, found without reading more than its first key value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rowtide.core.cluster.catalog import (
    TABLE,
    Catalog,
    Document,
    document_body,
    table_content,
    table_id,
)
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.values import variant
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import STRING, KeyColumn, ShardRange, Table, TableOptions
from rowtide.stream.api.directory import Directory
from rowtide.stream.routing.destinations import destinations
from rowtide.stream.slot.slot import Slot

ANN = Identity("key-of-ann", "shop", b"")
HERE, THERE = 1, 2


class Open(Slot):
    """A slot of this worker; nothing else of it is used."""

    is_foreign = False

    def __init__(self) -> None:
        pass


def directory(*, foreign: bool = False) -> Directory:
    """Return a worker that serves keys below "m" of the table ``t``; the others go elsewhere."""
    begin = b"\x04m\x00\x01"
    table = Table(
        instance=ANN.instance,
        name="t",
        table_id=1,
        key=(KeyColumn("PK1", STRING),),
        options=TableOptions(),
        stream=None,
        reserved_read=0,
        reserved_write=0,
        created_us=0,
        throughput_changed_s=0,
        shards=(ShardRange("s1", HERE), ShardRange("s2", THERE, begin)),
        split_points=(),
    )
    catalog = Catalog()
    _, body = document_body(Document(TABLE, table_id(table), table_content(table)))
    envelope = record.Envelope(0, 1, b"ownerid1", 1, record.SINGLE)
    assert catalog.replay(0, record.encode_record(envelope, record.encode_body(body)))
    here = Open()
    here.is_foreign = foreign
    return Directory(catalog, {HERE: here}, Limits(), lambda: 1)


def row(value: Any) -> bytes:
    """Return a row of one key column."""
    return plainbuffer.HEADER + plainbuffer.encode_row([(b"PK1", variant.encode(value))], [])


REQUESTS: dict[str, Callable[..., Any]] = {
    "PutRow": lambda buffer, **more: pb.PutRowRequest(row=buffer, **more),
    "UpdateRow": lambda buffer, **more: pb.UpdateRowRequest(row_change=buffer, **more),
    "DeleteRow": lambda buffer, **more: pb.DeleteRowRequest(primary_key=buffer, **more),
    "GetRow": lambda buffer, **more: pb.GetRowRequest(primary_key=buffer, **more),
}


def find_slot(operation: str, buffer: bytes, *, foreign: bool = False, **more: Any) -> int | None:
    """Return the slot that is found for a request."""
    request = REQUESTS[operation](buffer, **{"table_name": "t", **more})
    return destinations(directory(foreign=foreign))[operation](ANN, request.SerializeToString())


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_row_goes_where_its_first_key_says(operation: str) -> None:
    assert find_slot(operation, row("l")) is None, "it is here"
    assert find_slot(operation, row("m")) == THERE
    assert find_slot(operation, row("l"), foreign=True) == HERE, "another worker serves it as yet"


@pytest.mark.parametrize("operation", REQUESTS)
def test_what_only_a_handler_can_say_is_left_to_it(operation: str) -> None:
    assert find_slot(operation, row("m"), transaction_id="one") is None
    assert find_slot(operation, row("m"), table_name="unknown") is None
    assert find_slot(operation, row("m")[:-20]) is None
    assert find_slot(operation, b"") is None
    assert destinations(directory())[operation](ANN, b"\xff") is None
