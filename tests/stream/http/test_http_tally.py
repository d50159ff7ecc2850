"""Requests count by operation and by what their clients may assume; failed ones are logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rowtide.core.protocol.wire import ots_pb2 as wire
from rowtide.core.values.errors import (
    OutcomeUnknown,
    StoreError,
    Unavailable,
    condition_failure,
)
from rowtide.stream.http.request import Request
from rowtide.stream.http.request_log import RequestLog, find_table_names
from rowtide.stream.http.tally import OUTCOMES, UnknownWithin, latency_class

if TYPE_CHECKING:
    from tests.stream.http.conftest import Running

RequestBytes = Callable[..., bytes]


def raising(error: Exception) -> Any:
    """Return a handler that fails."""

    def handler(_: object, body: bytes) -> bytes:
        raise error

    return handler


ENDINGS: list[tuple[Any, str, str]] = [
    (lambda _, body: body, "ok", ""),
    (lambda _, body: UnknownWithin(body), "unknown", ""),
    (raising(condition_failure()), "refused", "OTSConditionCheckFail"),
    (raising(Unavailable("Gone.")), "unavailable", "OTSPartitionUnavailable"),
    (raising(OutcomeUnknown()), "unknown", "OTSTimeout"),
    (raising(ZeroDivisionError()), "fault", "OTSInternalServerError"),
]


@pytest.mark.parametrize(("handler", "outcome", "code"), ENDINGS)
async def test_a_request_counts_once_under_what_its_client_may_assume(
    handler: Any, outcome: str, code: str, running: Running, request_bytes: RequestBytes
) -> None:
    async with running({"PutRow": handler}) as live:
        await live.ask(request_bytes("PutRow"))
        tally = live.edge.tally
    counted = {
        (operation.name, OUTCOMES[number]): count
        for operation in tally.operations()
        for number, count in enumerate(operation.answered)
        if count
    }
    assert counted == {("PutRow", outcome): 1}
    assert tally.took["write"].count == 1
    assert tally.codes == ({code: 1} if code else {})


async def test_what_is_no_operation_counts_as_other(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live:
        await live.ask(request_bytes("Nonsense"))
        await live.ask(b"nonsense\r\n\r\n")
        assert live.edge.tally.other.answered == [0, 2, 0, 0, 0]


async def test_a_forged_signature_counts_as_refused(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running({"GetRow": lambda _, body: body}) as live:
        forged = request_bytes("GetRow", unsigned={"x-ots-signature": "AAAA"})
        assert (await live.ask(forged)).status == 403
        assert live.edge.tally.by_path[b"/GetRow"].answered == [0, 1, 0, 0, 0]


async def test_bytes_are_counted_both_ways(running: Running, request_bytes: RequestBytes) -> None:
    request = request_bytes(body=b"x" * 1000)
    async with running() as live, await live.connect() as client:
        client.send(request)
        await client.answer()
        assert live.edge.tally.bytes_in == len(request)
        assert live.edge.tally.bytes_out > 1000


@pytest.mark.parametrize(
    ("failure", "is_logged"),
    [(OutcomeUnknown(), True), (Unavailable("Gone."), True), (condition_failure(), False)],
)
async def test_what_no_client_is_to_blame_for_is_logged_under_the_clients_id(
    failure: StoreError,
    is_logged: bool,
    running: Running,
    request_bytes: RequestBytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = wire.PutRowRequest(table_name="parcels", row=b"a secret value")
    async with running({"PutRow": raising(failure)}) as live:
        answer = await live.ask(request_bytes("PutRow", row.SerializeToString()))
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    if not is_logged:
        assert lines == []
        return
    [line] = lines
    fields: Any = line.__dict__["fields"]
    assert fields == {
        "request_id": answer.headers["x-ots-requestid"],
        "operation": "PutRow",
        "instance": "inst",
        "table": "parcels",
        "code": failure.code,
    }
    assert answer.headers["x-ots-requestid"] in line.getMessage()
    assert "of inst/parcels" in line.getMessage()
    assert "secret" not in caplog.text


async def test_a_batch_with_a_row_of_unknown_outcome_is_logged(
    running: Running, request_bytes: RequestBytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running({"BatchWriteRow": lambda *_: UnknownWithin(b"answer")}) as live:
        answer = await live.ask(request_bytes("BatchWriteRow"))
    assert (answer.status, answer.body) == (200, b"answer")
    assert "the outcome of some of its rows is unknown" in caplog.text


async def test_of_slow_requests_one_in_a_second_is_logged_and_the_others_counted(
    running: Running, request_bytes: RequestBytes, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    async with running() as live, await live.connect() as client:
        live.edge.request_log = RequestLog(1e-9, lambda: now[0])
        for now_s in (100.0, 100.5, 100.9, 101.0):
            now[0] = now_s
            client.send(request_bytes())
            await client.answer()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "slow: 0.0" in lines[0]
    assert lines[1].endswith("and 2 more since the last such line")


def test_of_connections_turned_away_one_in_a_second_is_logged_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    log = RequestLog(0, lambda: now[0])
    for now_s in (100.0, 100.1, 100.9, 101.0):
        now[0] = now_s
        log.log_failure(Request(), Unavailable("Server is busy.", code="OTSServerBusy"))
    said = "connection rejected: Server is busy"
    assert [record.getMessage() for record in caplog.records] == [
        said,
        f"{said}, and 2 more since the last such line",
    ]


async def test_zero_makes_no_request_slow(
    running: Running, request_bytes: RequestBytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as live:
        await live.ask(request_bytes())
    assert caplog.records == []


NAMED: list[tuple[str, Any, list[str]]] = [
    ("GetRow", wire.GetRowRequest(table_name="a"), ["a"]),
    ("CreateTable", wire.CreateTableRequest(table_meta=wire.TableMeta(table_name="a")), ["a"]),
    ("CreateIndex", wire.CreateIndexRequest(main_table_name="a"), ["a"]),
    (
        "BatchWriteRow",
        wire.BatchWriteRowRequest(
            tables=[wire.TableInBatchWriteRowRequest(table_name=name) for name in "aba"]
        ),
        ["a", "b"],
    ),
    ("DescribeStream", wire.DescribeStreamRequest(stream_id="a_b_123"), ["a_b"]),
    ("ListTable", wire.ListTableRequest(), []),
    ("RowtideStatus", None, []),
    ("GetRow", wire.GetRowRequest(table_name="a\n12:30:59 ERROR"), []),
    ("GetRow", wire.GetRowRequest(table_name="a" * 256), []),
]


@pytest.mark.parametrize(("operation", "message", "names"), NAMED)
def test_the_tables_of_a_request_are_found(operation: str, message: Any, names: list[str]) -> None:
    content = b"" if message is None else message.SerializePartialToString()
    assert find_table_names(operation, content) == names


def test_a_request_that_is_very_long_names_no_table() -> None:
    content = wire.GetRowRequest(table_name="a").SerializePartialToString()
    padding = b"\x12" + b"\x80\x80\x80\x04" + bytes(8 << 20)
    assert find_table_names("GetRow", content + padding) == []


def test_a_request_that_cannot_be_read_names_no_table() -> None:
    assert find_table_names("GetRow", b"\xff") == []
    assert find_table_names("GetRow", b"\x0a\x02\xff\xff") == []


def test_rowtides_own_operations_are_admin() -> None:
    assert [latency_class(name).value for name in ("RowtideStatus", "PutRow", "SQLQuery")] == [
        "admin",
        "write",
        "other",
    ]
