"""A worker that is alone is starved: it, or its broker, stands still for longer than its lease."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from rowtide.cli.client import ServerError
from rowtide.client.wire_row import encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import INF_MAX, INF_MIN, batch_get, batch_write, get, get_range, key, put, puts
from tests.system.conftest import MakeServer
from tests.system.server import Server, wait_until

pytestmark = pytest.mark.system

LEASE_S = 2.0
TABLE = "starved"
ROW = key("a", 1)
NEW = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
CONDITION = "OTSConditionCheckFail"

ASKED: dict[str, tuple[Any, type[Any], str]] = {
    "GetRow": (get(TABLE, ROW), pb.GetRowResponse, "ok"),
    "GetRange": (
        get_range(TABLE, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)),
        pb.GetRangeResponse,
        "ok",
    ),
    "BatchGetRow": (batch_get([(TABLE, [ROW, ROW])]), pb.BatchGetRowResponse, "ok"),
    "PutRow": (put(TABLE, ROW, puts(a=2), condition=NEW), pb.PutRowResponse, CONDITION),
    "BatchWriteRow": (
        batch_write([(TABLE, [put(TABLE, ROW, puts(a=2), condition=NEW)])]),
        pb.BatchWriteRowResponse,
        CONDITION,
    ),
    "BulkExport": (
        pb.BulkExportRequest(
            table_name=TABLE,
            columns_to_get=["PK1", "PK2", "a"],
            inclusive_start_primary_key=encode_row(key(INF_MIN, INF_MIN)),
            exclusive_end_primary_key=encode_row(key(INF_MAX, INF_MAX)),
        ),
        pb.BulkExportResponse,
        "ok",
    ),
    "DescribeTable": (pb.DescribeTableRequest(table_name=TABLE), pb.DescribeTableResponse, "ok"),
    "ListTable": (pb.ListTableRequest(), pb.ListTableResponse, "ok"),
    "ListStream": (pb.ListStreamRequest(), pb.ListStreamResponse, "ok"),
    "StartLocalTransaction": (
        pb.StartLocalTransactionRequest(table_name=TABLE, key=encode_row(key("b"))),
        pb.StartLocalTransactionResponse,
        "ok",
    ),
    "ComputeSplitPointsBySize": (
        pb.ComputeSplitPointsBySizeRequest(table_name=TABLE, split_size=1),
        pb.ComputeSplitPointsBySizeResponse,
        "ok",
    ),
}


def ask_once(server: Server, operation: str) -> str:
    """Ask once; return ok or the code of the failure, also of a batch's rows."""
    request, kind, _ = ASKED[operation]
    with server.client() as client:
        try:
            answer = client.call(operation, request, kind)
        except ServerError as error:
            return error.code
    rows = [row for table in getattr(answer, "tables", ()) for row in table.rows]
    return next((row.error.code for row in rows if not row.is_ok), "ok")


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process, as one that gets no CPU."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def has_no_lease(server: Server) -> bool:
    """True once the server says that its leases have lapsed."""
    try:
        with urllib.request.urlopen(f"{server.ready().endpoint}/readyz", timeout=10):
            return False
    except urllib.error.HTTPError as error:
        with error:
            return "no lease" in str(json.loads(error.read())["reasons"])


@pytest.mark.parametrize("who", ["worker", "broker"])
def test_requests_wait_for_the_renewal_of_a_lease_that_nobody_else_has_claimed(
    make_server: MakeServer, make_worker: MakeServer, who: str
) -> None:
    """They failed with OTSPartitionUnavailable although nothing had failed."""
    make = make_worker if who == "worker" else make_server
    server = make("--slots", "2", "--lease-s", str(LEASE_S))
    server.start()
    with server.client() as client:
        client.create_table(TABLE, [KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER)])
        client.call("PutRow", put(TABLE, ROW, puts(a=1)), pb.PutRowResponse)
    pid = server.pid if who == "worker" else server.broker_pid
    assert pid is not None
    with ThreadPoolExecutor(len(ASKED)) as threads:
        answers: dict[str, Future[str]] = {}
        with frozen(pid):
            if who == "broker":
                wait_until(lambda: has_no_lease(server), what="no lease")
            for operation in ASKED:
                answers[operation] = threads.submit(ask_once, server, operation)
            if who == "worker":  # Nothing tells when it would have lapsed.
                ends_s = time.monotonic() + LEASE_S + 0.5
                wait_until(lambda: time.monotonic() > ends_s, what="a lapsed lease")
        found = {operation: answer.result() for operation, answer in answers.items()}
    assert found == {operation: wanted for operation, (_, _, wanted) in ASKED.items()}
