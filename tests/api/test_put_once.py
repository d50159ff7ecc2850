"""RowtidePutOnce: a new row unless a local index has one like it; any repeat gets its key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client import AUTO_INCREMENT, Client, SecondaryIndex, Unavailable
from rowtide.client.wire_row import Special, encode_row
from rowtide.core.protocol.operations import PUT_ONCE
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import key, puts

pytestmark = pytest.mark.system

NAMES = ("chat", "n")


@pytest.fixture
def table(server: Ready) -> Iterator[Client]:
    with Client(**server._asdict(), patience_s=0.0) as caller:
        caller.create_table(
            "sent",
            {"chat": str, "n": AUTO_INCREMENT},
            defined_columns={"message": str},
            indexes=[
                SecondaryIndex("sent_once", ["chat", "message"], is_local=True),
                SecondaryIndex("everywhere", ["message"]),
            ],
            stream_hours=24,
        )
        yield caller
        caller.delete_table("sent")


def test_a_repeat_gets_the_key_of_the_first_row(table: Client) -> None:
    row = {"chat": "a", "message": "m", "text": "hello"}
    first = table.put_once("sent", row, index="sent_once")
    again = table.put_once("sent", {**row, "text": "other"}, index="sent_once")
    assert (first.is_new, again.is_new, again.key) == (True, False, first.key)
    assert table.get("sent", first.key) == {**first.key, "message": "m", "text": "hello"}
    assert list(table.range("sent", prefix={"chat": "a"})) == [table.get("sent", first.key)]
    elsewhere = table.put_once("sent", {**row, "chat": "b"}, index="sent_once")
    assert elsewhere.is_new


def test_a_put_is_rejected_while_a_transaction_holds_its_partition(table: Client) -> None:
    with table.transaction("sent", "a") as transaction:
        transaction.put({"chat": "a", "message": "m"})
        with pytest.raises(Unavailable, match="modified by the other request"):
            table.put_once("sent", {"chat": "a", "message": "m"}, index="sent_once")
    assert not table.put_once("sent", {"chat": "a", "message": "m"}, index="sent_once").is_new


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"index_name": "other"}, "has no index 'other'"),
        ({"index_name": ""}, "has no index ''"),
        ({"index_name": "everywhere"}, "must be local"),
        ({"table_name": "sent_once"}, "it can only be read"),
        ({"table_name": "absent"}, "does not exist"),
        ({"row": encode_row(key("a", 5, names=NAMES), puts(message="m"))}, "left to the server"),
        ({"row": encode_row(key("a", Special.AUTO_INCREMENT, names=NAMES))}, "'message' of index"),
        ({"row": b"no row"}, "OTSParameterInvalid"),
    ],
)
def test_a_request_that_cannot_be_answered_is_rejected(
    table: Client, client: ProtocolClient, fields: dict[str, Any], words: str
) -> None:
    row = encode_row(key("a", Special.AUTO_INCREMENT, names=NAMES), puts(message="m"))
    wanted = {"table_name": "sent", "row": row, "index_name": "sent_once", **fields}
    with pytest.raises(ServerError) as refused:
        client.call(PUT_ONCE, pb.PutOnceRequest(**wanted), pb.PutOnceResponse)
    assert words in f"{refused.value.code} {refused.value.message}"
    assert list(table.range("sent")) == []
