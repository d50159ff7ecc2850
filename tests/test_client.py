"""Our client says byte for byte what the official SDK says, and tells the failures apart."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import tablestore
from tablestore.auth import RequestContext, SignV2
from tablestore.credentials import StaticCredentialsProvider
from tablestore.protocol import OTSProtocol

from rowtide.cli.client import Access, NoAnswer, ProtocolClient, ServerError, Write, sign_headers
from rowtide.client.wire_row import Delete, Increment, Put, Special, change_of, encode_row
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.core.protocol.wire import ots_pb2 as pb

SDK_KEY = [("a", "x"), ("b", -7), ("c", bytearray(b"\0\1"))]
KEY = (("a", "x"), ("b", -7), ("c", b"\0\1"))
CONDITION = tablestore.Condition(tablestore.RowExistenceExpectation.IGNORE)
# From the protocol's description: a stream record with a put and both kinds of delete.
STREAM_ROW = bytes.fromhex(
    "7500000001030402000000706b05060000000301000000610ad402030402000000633105090000000001000000"
    "00000000070098f73e5d0100000a1303040200000063320603070098f73e5d0100000acf0304020000006333"
    "06010ab90b180000000c130000000d020000000e00c029f73d5405000f030000000987"
)


def sdk_request(operation: str, *arguments: Any) -> tuple[dict[str, str], bytes]:
    """Return headers and body of what the official SDK would send."""
    protocol = OTSProtocol("inst", "utf8", logging.getLogger("tablestore"))
    credentials = StaticCredentialsProvider("id", "secret", None).get_credentials()
    context = RequestContext(credentials)
    _, headers, body = protocol.make_request(operation, SignV2("utf8"), context, *arguments)
    return headers, bytes(body)


@contextmanager
def server(*answers: bytes) -> Iterator[ProtocolClient]:
    """Serve one connection that gives these answers in turn, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=(listening, answers))
        thread.start()
        with client_of(listening.getsockname()[1]) as client:
            yield client
        thread.join()


def _serve(listening: socket.socket, answers: tuple[bytes, ...]) -> None:
    connection, _ = listening.accept()
    with connection, connection.makefile("rb") as reader:
        for answer in answers:
            length = 0
            while (line := reader.readline().lower()) not in (b"\r\n", b""):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            reader.read(length)
            connection.sendall(answer)


def client_of(port: int) -> ProtocolClient:
    return ProtocolClient(
        f"http://127.0.0.1:{port}", instance="inst", access_key_id="id", access_key_secret="secret"
    )


def answer(status: int, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} -\r\nx-ots-requestid: r1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_put_is_encoded_as_the_sdk_does() -> None:
    columns = [("s", "你"), ("i", 5), ("d", 2.5), ("b", True), ("x", bytearray(b"zz"), 1500)]
    _, body = sdk_request("PutRow", "t", tablestore.Row(SDK_KEY, columns), CONDITION, None, None)
    puts = [Put("s", "你"), Put("i", 5), Put("d", 2.5), Put("b", True), Put("x", b"zz", 1500)]
    assert encode_row(KEY, puts) == pb.PutRowRequest.FromString(body).row


def test_an_update_is_encoded_as_the_sdk_does() -> None:
    changes = {
        "put": [("s", "v")],
        "delete": [("o", None, 1500)],
        "delete_all": ["g"],
        "increment": [("n", 5)],
    }
    _, body = sdk_request("UpdateRow", "t", tablestore.Row(SDK_KEY, changes), CONDITION, None, None)
    ours = encode_row(KEY, [Put("s", "v"), Delete("o", 1500), Delete("g"), Increment("n", 5)])
    assert ours == pb.UpdateRowRequest.FromString(body).row_change


def test_a_delete_is_encoded_as_the_sdk_does() -> None:
    _, body = sdk_request("DeleteRow", "t", SDK_KEY, CONDITION, None, None)
    assert encode_row(KEY, deleted=True) == pb.DeleteRowRequest.FromString(body).primary_key


def test_special_key_values_are_encoded_as_the_sdk_does() -> None:
    start, end = [("a", tablestore.INF_MIN)], [("a", tablestore.INF_MAX)]
    _, body = sdk_request("GetRange", "t", "FORWARD", start, end, *[None] * 9)
    request = pb.GetRangeRequest.FromString(body)
    assert encode_row([("a", Special.INF_MIN)]) == request.inclusive_start_primary_key
    assert encode_row([("a", Special.INF_MAX)]) == request.exclusive_end_primary_key


def test_a_request_is_signed_as_the_sdk_does() -> None:
    headers, body = sdk_request("DescribeTable", "t")
    then = datetime.fromisoformat(headers["x-ots-date"])
    ours = sign_headers(Access("inst", "id", "secret"), "DescribeTable", body, then)
    assert ours == {name: headers[name] for name in ours}


def test_a_stream_record_is_its_changes_and_its_place() -> None:
    changed = change_of(plainbuffer.decode_row(STREAM_ROW))
    assert changed.key == (("pk", "a"),)
    assert changed.changes == (
        Put("c1", 1, 1500000000000),
        Delete("c2", 1500000000000),
        Delete("c3"),
    )
    assert changed.sequence == SequenceInfo(epoch=2, timestamp_us=1500000000000000, row_index=3)


def test_a_range_is_read_page_by_page_to_its_end() -> None:
    rows = [plainbuffer.encode_row([(b"a", b"\x00" + bytes([n]) + bytes(7))], []) for n in range(3)]
    consumed = pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=1, write=0))
    header = plainbuffer.HEADER
    first = pb.GetRangeResponse(
        consumed=consumed,
        rows=header + rows[0] + rows[1],
        next_start_primary_key=header + rows[2],
    )
    last = pb.GetRangeResponse(consumed=consumed, rows=header + rows[2])
    ends = [("a", Special.INF_MIN)], [("a", Special.INF_MAX)]
    pages = [answer(200, page.SerializeToString()) for page in (first, last)]
    with server(*pages) as client:
        found = [[row.key for row in page] for page in client.get_range("t", *ends)]
    assert found == [[(("a", 0),), (("a", 1),)], [(("a", 2),)]]


def test_a_batch_tells_the_failure_of_each_row() -> None:
    response = pb.BatchWriteRowResponse()
    part = response.tables.add(table_name="t")
    part.rows.add(is_ok=True)
    part.rows.add(is_ok=False, error=pb.Error(code="OTSServerBusy", message="Server is busy."))
    with server(answer(200, response.SerializeToString())) as client:
        outcomes = client.batch_write_row({"t": [Write("PUT", KEY), Write("DELETE", KEY)]})
    assert [outcome and outcome.code for outcome in outcomes] == [None, "OTSServerBusy"]


def test_a_refusal_carries_the_servers_code_and_request_id() -> None:
    refusal = pb.Error(code="OTSObjectNotExist", message="Requested table does not exist.")
    with (
        server(answer(404, refusal.SerializeToString())) as client,
        pytest.raises(ServerError, match="Requested table does not exist") as raised,
    ):
        client.describe_table("t")
    assert (raised.value.code, raised.value.status, raised.value.request_id) == (
        "OTSObjectNotExist",
        404,
        "r1",
    )


def test_an_error_page_of_a_proxy_is_a_refusal_too() -> None:
    with (
        server(answer(502, b"<html>Bad gateway</html>")) as client,
        pytest.raises(ServerError, match="HTTP502: <html>Bad gateway"),
    ):
        client.list_table()


def test_a_connection_that_closes_without_an_answer_is_no_refusal() -> None:
    with server() as client, pytest.raises(NoAnswer, match="no answer from"):
        client.list_table()


def test_an_endpoint_that_nobody_serves_is_no_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with client_of(port) as client, pytest.raises(NoAnswer, match=f"no answer from .*{port}"):
        client.list_table()


def test_an_endpoint_must_be_a_url() -> None:
    with pytest.raises(ValueError, match="must be http://HOST:PORT, not 'localhost'"):
        ProtocolClient("localhost", instance="i", access_key_id="k", access_key_secret="s")
