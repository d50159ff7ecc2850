"""What one process may do at a time: be a source, and fill files of one machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from rowtide.cli.client import ProtocolClient
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Put, Special
from rowtide.connectors.runtime import home
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Ready
from tests.connectors import alone_sink, lines_source
from tests.connectors.processes import ROOT, ConnectorProcesses, declare
from tests.connectors.runtime.conftest import Run
from tests.connectors.sqlite_sink import KIND, read_file_rows
from tests.support.servers import serving
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.system


def read_written_rows(client: ProtocolClient, table: str) -> dict[object, object]:
    if table not in client.list_table():
        return {}
    low, high = [("id", Special.INF_MIN)], [("id", Special.INF_MAX)]
    pages = client.get_range(table, low, high)
    return {row.key[0][1]: row.columns[0].value for page in pages for row in page}


def test_killed_sources_lose_nothing_and_one_alone_is_the_source(
    server: Ready,
    rows: ProtocolClient,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    file, table = tmp_path / "lines", "from_lines"
    source = {"kind": lines_source.KIND, "path": str(file), "table": table}
    document = {"source": source, "lease_ms": 1000}
    file.write_text("")
    declare(server, yaml.safe_dump({"connectors": {"lines": document}}))
    expected: dict[object, object] = {}

    def write(count: int) -> None:
        with file.open("a") as out:
            for _ in range(count):
                name = f"row{len(expected) % 40}"
                expected[name] = len(expected)
                out.write(json.dumps({"id": name, "n": expected[name]}) + "\n")

    for _ in range(2):
        processes.start("lines")
    for _ in range(3):
        write(40)
        until(lambda: bool(read_written_rows(rows, table)), message=processes.said)
        processes.kill()
        processes.start("lines")
        write(40)
    until(lambda: read_written_rows(rows, table) == expected, message=processes.said)
    until(
        lambda: (
            sorted(
                report["state"]
                for report in connector("status", "lines", "-o", "json")[0]["processes"]
            ).count("running")
            == 1
        )
    )
    processes.stop_all()
    connector("delete", "lines", "--yes")
    rows.delete_table(table)


def test_what_a_deleted_source_parked_is_there_when_it_goes_on(
    server: Ready,
    rows: ProtocolClient,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    """Once the entry was removed. The source, declared again, continued after the row
    without a trace of it.
    """
    file, table = tmp_path / "lines", "parked_lines"
    source = {"kind": lines_source.KIND, "path": str(file), "table": table}
    lines = [{"id": "bad", "v": "x" * 3_000_000}, {"id": "good", "n": 1}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    declared = yaml.safe_dump({"connectors": {"parting": {"source": source, "lease_ms": 1000}}})
    declare(server, declared)
    processes.start("parting")
    until(lambda: read_written_rows(rows, table) == {"good": 1}, message=processes.said)
    processes.stop_all()
    text = connector("delete", "parting", "--yes")
    assert "parting leaves behind a parked row, to be retried or skipped" in text
    declare(server, declared)
    [entry] = connector("parked", "list", "parting", "--output", "json")
    assert table in entry["reason"]
    processes.start("parting")
    connector("parked", "skip", "parting", "--all")
    until(lambda: not connector("parked", "list", "parting", "-o", "json"), message=processes.said)
    processes.stop_all()
    assert connector("delete", "parting", "--yes") == "Deleted parting.\n"
    rows.delete_table(table)


async def test_files_that_are_elsewhere_are_filled_anew(
    server: Ready,
    orders: str,
    rows: ProtocolClient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(home, "AWAY_S", 1.0)
    document = {"table": orders, "sink": {"kind": alone_sink.KIND}, "lease_ms": 1000}
    declaration = parse_document("alone", document)
    await asyncio.to_thread(rows.put_row, orders, [("id", "one")], [Put("n", 1)])
    async with Endpoint(**server._asdict()) as endpoint, asyncio.TaskGroup() as tasks:

        def start(folder: str) -> SinkRun:
            run = SinkRun(declaration, ProcessContext(endpoint, {}, str(tmp_path / folder)))
            tasks.create_task(run.run())
            return run

        def count_rows(folder: str) -> int:
            file = tmp_path / folder / "alone" / "rows.db"
            return len(read_file_rows(str(file))) if file.exists() else 0

        first, second = start("here"), start("here")
        await until_async(lambda: count_rows("here") == 1)
        # The later one may fail first, while the table of leases that the other creates opens.
        await until_async(lambda: sorted([first.state, second.state]) == ["running", "waiting"])
        # Of one machine: the other goes on with the same files.
        running, waiting = (first, second) if first.state == "running" else (second, first)
        running.stop()
        await asyncio.to_thread(rows.put_row, orders, [("id", "two")], [Put("n", 2)])
        await until_async(lambda: count_rows("here") == 2)
        assert waiting.progress.snapshot_rows == 0
        # Of another: its files begin with the rows.
        third = start("there")
        waiting.stop()
        await until_async(lambda: count_rows("there") == 2)
        third.stop()


def test_a_worker_runs_what_is_declared_and_shows_its_metrics(
    tmp_path: Path, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = str(tmp_path / "rows.db")
    with (
        serving(tmp_path, "--cache-dir", str(cache_dir)) as ready,
        ProtocolClient(**ready._asdict()) as client,
    ):
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
        client.create_table("orders", (KeyColumn("id", STRING),), stream=stream)
        client.put_row("orders", [("id", "one")], [Put("n", 1)])
        document = {"table": "orders", "sink": {"kind": KIND, "path": path}}
        declare(ready, yaml.safe_dump({"connectors": {"beside": document}}))
        until(lambda: len(read_file_rows(path)) == 1)

        def page() -> str:
            with urlopen(f"{ready.endpoint}/metrics") as answer:
                return str(answer.read(), "utf-8")

        until(lambda: 'rowtide_connector_changes_total{connector="beside"} 1.0' in page())
