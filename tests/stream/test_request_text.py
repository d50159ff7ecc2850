"""Strings of a request: UTF-8, and not too many of them."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from rowtide.stream.api.request_text import PARTS_MAX, require_text

MANY = {
    "strings": pb.GetRowRequest(columns_to_get=["c"] * (PARTS_MAX + 1)),
    "messages": pb.BatchGetRowRequest(tables=[pb.TableInBatchGetRowRequest()] * (PARTS_MAX + 1)),
    "strings of two messages": pb.BatchGetRowRequest(
        tables=[pb.TableInBatchGetRowRequest(columns_to_get=["c"] * (PARTS_MAX // 2))] * 2
    ),
    "messages in a message": pb.CreateTableRequest(
        table_meta=pb.TableMeta(primary_key=[pb.PrimaryKeySchema(name="k")] * (PARTS_MAX + 1))
    ),
}


def test_the_largest_batch_of_reads_is_taken() -> None:
    table = pb.TableInBatchGetRowRequest(table_name="t", columns_to_get=["c"] * 1024)
    require_text(pb.BatchGetRowRequest(tables=[table] * 100))


@pytest.mark.parametrize("request_", MANY.values(), ids=MANY.keys())
def test_a_request_of_more_parts_than_could_be_answered_is_refused(request_: Message) -> None:
    with pytest.raises(Rejected, match=f"more than {PARTS_MAX} values of repeated fields"):
        require_text(request_)


def test_text_that_is_not_utf_8_is_refused() -> None:
    request = pb.GetRowRequest.FromString(b"\x0a\x02\xff\xff")
    with pytest.raises(Rejected, match="field 'table_name' is not UTF-8"):
        require_text(request)
