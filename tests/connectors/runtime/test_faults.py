"""What becomes of a connector whose sink refuses, is away, or fails; nothing is lost by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rowtide.cli.client import Client
from rowtide.cli.wire_row import Put
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare, until
from tests.connectors.runtime.conftest import Run
from tests.connectors.sqlite_sink import KIND, held_rows

pytestmark = pytest.mark.system

LEASE_MS = 2000


class Sink:
    """A connector of a table to a SQLite file, under a name of its own."""

    def __init__(self, server: Ready, name: str, table: str, folder: Path, **more: object) -> None:
        self.name = name
        self.path = str(folder / f"{name}.db")
        self._fault = Path(self.path + ".fault")
        document = {"table": table, "sink": {"kind": KIND, "path": self.path}}
        declare(
            server,
            yaml.safe_dump({"connectors": {name: {**document, "lease_ms": LEASE_MS, **more}}}),
        )

    def fault(self, text: str) -> None:
        draft = Path(self.path + ".draft")
        draft.write_text(text)
        draft.replace(self._fault)

    def mend(self) -> None:
        self._fault.unlink()

    @property
    def rows(self) -> dict[str, Any]:
        """The rows by the text of their key, which is one column."""
        return {key[1:-2].decode(): row for key, row in held_rows(self.path).items()}


def put(client: Client, table: str, name: str, **columns: Any) -> None:
    client.put_row(table, [("id", name)], [Put(n, v) for n, v in columns.items()])


def update(client: Client, table: str, name: str, **columns: Any) -> None:
    client.update_row(table, [("id", name)], [Put(n, v) for n, v in columns.items()])


def test_a_refused_row_is_parked_with_its_key_while_others_flow(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "refusing", orders, tmp_path)
    sink.fault("refuse bad")
    put(rows, orders, "first", v="good")
    processes.start(sink.name)
    put(rows, orders, "second", v="bad")
    put(rows, orders, "third", v="good")
    until(lambda: sink.rows.keys() == {"first", "third"}, told=processes.said)
    until(lambda: connector("parked", "list", sink.name, "--output", "json") != [])
    [entry] = connector("parked", "list", sink.name, "--output", "json")
    assert entry["row"]["key"] == {"id": "second"}
    assert entry["row"]["columns"] == {"v": "bad"}
    assert entry["reason"] == "bad is refused"
    # What comes later of the key waits, also for a process that begins later.
    processes.stop()
    processes.start(sink.name)
    update(rows, orders, "second", v="better", w=1)
    put(rows, orders, "fourth", v="good")
    until(lambda: "fourth" in sink.rows, told=processes.said)
    assert "second" not in sink.rows
    shown = connector("parked", "show", sink.name, entry["id"], "--output", "json")
    assert shown["waiting"] == 1
    connector("parked", "retry", sink.name, entry["id"])
    until(lambda: sink.rows.get("second") == {"v": "better", "w": 1}, told=processes.said)
    until(lambda: connector("parked", "list", sink.name, "--output", "json") == [])
    put(rows, orders, "second", v="best")
    until(lambda: sink.rows["second"] == {"v": "best"}, told=processes.said)


def test_a_parked_row_is_skipped_and_one_refused_again_stays(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "skipping", orders, tmp_path)
    sink.fault("refuse bad")
    put(rows, orders, "one", v="bad")
    put(rows, orders, "two", v="bad")
    processes.start(sink.name)
    until(lambda: len(connector("parked", "list", sink.name, "--output", "json")) == 2)
    connector("parked", "retry", sink.name, "--all")
    until(
        lambda: (
            {entry["wanted"] for entry in connector("parked", "list", sink.name, "-o", "json")}
            == {None}
        )
    )
    assert len(connector("parked", "list", sink.name, "--output", "json")) == 2
    connector("parked", "skip", sink.name, "--all")
    until(lambda: connector("parked", "list", sink.name, "--output", "json") == [])
    assert sink.rows == {}
    put(rows, orders, "one", v="good")
    until(lambda: sink.rows == {"one": {"v": "good"}}, told=processes.said)
    connector("parked", "show", sink.name, "0123456789", code=1)


def test_too_many_refused_rows_are_a_failure_of_the_connector(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "overflowing", orders, tmp_path, parked_max=2)
    sink.fault("refuse bad")
    for number in range(5):
        put(rows, orders, f"row{number}", v="bad")
    processes.start(sink.name)
    until(lambda: "TooManyParked" in connector("status", sink.name), told=processes.said)
    assert connector("parked", "list", sink.name, "--output", "json") == []
    sink.mend()
    until(lambda: len(sink.rows) == 5, told=processes.said)


def test_a_sink_that_is_away_is_waited_for(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "waiting", orders, tmp_path)
    sink.fault("unavailable")
    put(rows, orders, "first", v=1)
    processes.start(sink.name)
    until(
        lambda: connector("status", sink.name, "-o", "json")[0]["state"] == "sink away",
        told=processes.said,
    )
    [told] = connector("status", sink.name, "--output", "json")
    assert "the file is away" in told["processes"][0]["last_error"]
    sink.mend()
    until(lambda: sink.rows == {"first": {"v": 1}}, told=processes.said)
    until(lambda: "the sink is away" in connector("logs", sink.name), told=processes.said)


def test_one_that_fails_is_begun_again_and_others_do_not_notice(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    failing, healthy = (Sink(server, name, orders, tmp_path) for name in ("failing", "healthy"))
    failing.fault("fail")
    put(rows, orders, "first", v=1)
    processes.start(failing.name, healthy.name)
    until(lambda: healthy.rows == {"first": {"v": 1}}, told=processes.said)
    until(
        lambda: "RuntimeError: the sink has a fault" in connector("status", failing.name),
        told=processes.said,
    )
    assert failing.rows == {}
    failing.mend()
    until(lambda: failing.rows == {"first": {"v": 1}}, told=processes.said)


def test_the_work_is_divided_between_processes(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "divided", orders, tmp_path)
    for at in ("e", "m", "t"):
        shards = rows.call_json("RowtideListShards", {"table": orders})["shards"]
        last = [shard["shard"] for shard in shards if shard["state"] == "open"][-1]
        rows.call_json("RowtideSplitShard", {"table": orders, "shard": last, "at": at})
    for _ in range(2):
        processes.start(sink.name)

    def shares() -> list[int]:
        [told] = connector("status", sink.name, "--output", "json")
        return [report["shards"] for report in told["processes"]]

    until(lambda: shares() == [2, 2], told=lambda: (shares(), processes.said()))
    for letter in "aeimquy":
        put(rows, orders, letter, v=letter)
    until(lambda: sink.rows.keys() == set("aeimquy"), told=processes.said)


def test_pause_resume_rewind_and_delete(
    server: Ready,
    rows: Client,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    sink = Sink(server, "rewound", orders, tmp_path)
    put(rows, orders, "kept", v=1)
    processes.start()
    until(lambda: sink.rows.keys() == {"kept"}, told=processes.said)
    connector("pause", sink.name)
    put(rows, orders, "later", v=2)
    [told] = connector("status", sink.name, "--output", "json")
    assert (told["state"], told["lag"]["records"]) == ("paused", 1)
    # What the target lost comes back with the rows, as does what was written meanwhile.
    Path(sink.path).unlink()
    connector("rewind", sink.name, "rows")
    connector("resume", sink.name)
    until(lambda: sink.rows.keys() == {"kept", "later"}, told=processes.said)
    connector("delete", sink.name, "--yes")
    assert sink.name not in connector("list")
    put(rows, orders, "after", v=3)
    again = Sink(server, "rewound", orders, tmp_path, begin="oldest")
    until(lambda: again.rows.keys() == {"kept", "later", "after"}, told=processes.said)
    connector("delete", sink.name, "--yes")
