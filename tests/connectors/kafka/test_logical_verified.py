"""``rowtide verify`` of a topic with a logical type, while its connector runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import key
from tests.api.conftest import MakeTable
from tests.connectors.processes import ConnectorProcesses, declare, environment, yaml_of
from tests.support.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

ROWS = 20
STREAM = pb.StreamSpecification(enable_stream=True, expiration_time=24)


@pytest.fixture
def processes(server: Ready, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """Connector processes that end with the test."""
    with ExitStack() as closing:
        yield ConnectorProcesses(server, tmp_path, closing)


def rowtide(server: Ready, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from rowtide.cli.main import main; main()", *words],
        env={**os.environ, **environment(server)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_waits_behind_a_refused_row_is_written_once_that_is_skipped(
    server: Ready,
    broker: str,
    topic: str,
    client: ProtocolClient,
    make_table: MakeTable,
    processes: ConnectorProcesses,
) -> None:
    table = make_table(stream=STREAM)
    for number in range(ROWS):
        client.put_row(table, key(f"{number:02}", 1), [Put("amount", f"{number}.5")])
    name = f"verified-{topic}"
    sink: dict[str, object] = {
        "kind": "kafka",
        "brokers": broker,
        "topic": topic,
        "format": "json-schemas",
    }
    sink["columns"] = {"amount": "DECIMAL(10,2)"}
    declare(server, yaml_of(name, {"table": table, "sink": sink, "begin": "rows"}))
    processes.start(name)
    result = rowtide(server, "verify", table, name)
    assert (result.returncode, result.stderr) == (0, ""), processes.said()
    assert f"{ROWS} rows, {ROWS} held" in result.stdout
    client.put_row(table, key("03", 1), [Put("amount", "1.234")])
    result = rowtide(server, "verify", table, name)
    assert result.stdout.splitlines()[0] == "different  03, 1: amount"
    client.put_row(table, key("03", 1), [Put("amount", "1.23")])
    skipped = rowtide(server, "connector", "parked", "skip", name, "--all")
    assert skipped.returncode == 0, skipped.stderr
    until(lambda: rowtide(server, "verify", table, name).returncode == 0, message=processes.said)
