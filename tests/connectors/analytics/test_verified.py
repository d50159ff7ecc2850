"""``rowtide verify`` of each analytics target, while its connector runs, and of a spoiled one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import duckdb
import pytest

from demo.servers.clickhouse import Clickhouse
from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import key
from tests.api.conftest import MakeTable
from tests.connectors.processes import ConnectorProcesses, declare, environment, yaml_of

pytestmark = [pytest.mark.kafka, pytest.mark.system]

ROWS = 40
STREAM = pb.StreamSpecification(enable_stream=True, expiration_time=24)
KINDS = (
    "duckdb",
    "clickhouse",
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "parquet")),
)


@pytest.fixture
def processes(server: Ready, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """Connector processes that end with the test."""
    with ExitStack() as closing:
        yield ConnectorProcesses(server, tmp_path, closing)


def settings(kind: str, folder: Path, request: pytest.FixtureRequest) -> dict[str, object]:
    columns = {"amount": "DECIMAL(10,2)"}
    if kind == "clickhouse":
        clickhouse: Clickhouse = request.getfixturevalue("clickhouse")
        return {"kind": kind, "url": clickhouse.url, "columns": columns}
    place = {"duckdb": "file", "delta": "place", "parquet": "folder"}[kind]
    return {"kind": kind, place: str(folder / f"rows.{kind}"), "columns": columns}


def verify(server: Ready, table: str, name: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from rowtide.cli.main import main; main()"]
    return subprocess.run(
        [*command, "verify", table, name],
        env={**os.environ, **environment(server)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_found_equal_while_its_connector_runs(
    kind: str,
    server: Ready,
    client: ProtocolClient,
    make_table: MakeTable,
    processes: ConnectorProcesses,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    table = make_table(stream=STREAM)
    for number in range(ROWS):
        value: Any = number if number % 3 else f"text {number}"
        columns = [Put("n", value), Put("d", number / 7), Put("amount", f"{number}.5")]
        client.put_row(table, key(f"{number:02}", 1), columns)
    name = f"verified-{kind}"
    document = {"table": table, "sink": settings(kind, tmp_path, request), "begin": "rows"}
    declare(server, yaml_of(name, document))
    processes.start(name)
    result = verify(server, table, name)
    assert (result.returncode, result.stderr) == (0, ""), processes.said()
    assert f"{ROWS} rows, {ROWS} held" in result.stdout
    client.put_row(table, key("03", 1), [Put("n", True)])
    result = verify(server, table, name)
    assert result.returncode == 0, result.stdout + processes.said()
    if kind != "duckdb":
        client.put_row(table, key("03", 1), [Put("n", True), Put("amount", "1.234")])
        result = verify(server, table, name)
        assert result.returncode == 1
        assert result.stdout.splitlines()[0] == "different  03, 1: amount"
    else:
        processes.stop_all()
        _spoil(tmp_path / "rows.duckdb", table)
        result = verify(server, table, name)
        assert result.returncode == 1
        assert result.stdout.splitlines()[:2] == ["different  03, 1: n", "missing    04, 1"]


def _spoil(file: Path, table: str) -> None:
    with duckdb.connect(str(file)) as connection:
        rows = f"{table}__rows"
        # Three columns are ours, the next one is the first of the key.
        first = connection.execute(f"DESCRIBE {rows}").fetchall()[3][0]
        connection.execute(f"UPDATE {rows} SET n__boolean = false WHERE {first} = '03'")
        connection.execute(f"UPDATE {rows} SET _rowtide_deleted = true WHERE {first} = '04'")
