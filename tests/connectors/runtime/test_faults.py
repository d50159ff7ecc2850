"""A connector whose sink refuses, is unavailable, or fails loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare
from tests.connectors.runtime.conftest import Run
from tests.connectors.sqlite_sink import KIND, read_file_rows
from tests.support.waiting import until

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
        return {key[1:-2].decode(): row for key, row in read_file_rows(self.path).items()}


@dataclass(frozen=True)
class Scene:
    """A table, the processes that run connectors of it, and the command line beside them."""

    server: Ready
    client: ProtocolClient
    table: str
    processes: ConnectorProcesses
    connector: Run
    folder: Path

    def sink(self, name: str, **more: object) -> Sink:
        """Declare a connector of the table."""
        return Sink(self.server, name, self.table, self.folder, **more)

    def put(self, name: str, **columns: Any) -> None:
        self.client.put_row(self.table, [("id", name)], [Put(n, v) for n, v in columns.items()])

    def update(self, name: str, **columns: Any) -> None:
        self.client.update_row(self.table, [("id", name)], [Put(n, v) for n, v in columns.items()])

    def status(self, sink: Sink) -> Any:
        [report] = self.connector("status", sink.name, "--output", "json")
        return report

    def list_parked(self, sink: Sink) -> Any:
        return self.connector("parked", "list", sink.name, "--output", "json")

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something is true. On a time-out report the output of the processes."""
        until(holds, message=self.processes.said)


@pytest.fixture
def scene(
    server: Ready,
    rows: ProtocolClient,
    orders: str,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> Scene:
    """No connector yet, and no process."""
    return Scene(server, rows, orders, processes, connector, tmp_path)


def test_a_refused_row_is_parked_with_its_key_while_others_flow(scene: Scene) -> None:
    sink = scene.sink("refusing")
    sink.fault("refuse bad")
    scene.put("first", v="good")
    scene.processes.start(sink.name)
    scene.put("second", v="bad")
    scene.put("third", v="good")
    scene.until(lambda: sink.rows.keys() == {"first", "third"})
    scene.until(lambda: scene.list_parked(sink) != [])
    [entry] = scene.list_parked(sink)
    assert entry["row"]["key"] == {"id": "second"}
    assert entry["row"]["columns"] == {"v": "bad"}
    assert entry["reason"] == "bad is refused"
    # What comes later of the key waits, also for a process that begins later.
    scene.processes.stop()
    scene.processes.start(sink.name)
    scene.update("second", v="better", w=1)
    scene.put("fourth", v="good")
    scene.until(lambda: "fourth" in sink.rows)
    assert "second" not in sink.rows

    def waiting() -> int:
        shown = scene.connector("parked", "show", sink.name, entry["id"], "--output", "json")
        return int(shown["waiting"])

    # It is noted once the sink has the rest of the batch, and so may come after that.
    scene.until(lambda: waiting() == 1)
    scene.connector("parked", "retry", sink.name, entry["id"])
    scene.until(lambda: sink.rows.get("second") == {"v": "better", "w": 1})
    scene.until(lambda: scene.list_parked(sink) == [])
    scene.put("second", v="best")
    scene.until(lambda: sink.rows["second"] == {"v": "best"})


def test_a_parked_row_is_skipped_and_one_refused_again_stays(scene: Scene) -> None:
    sink = scene.sink("skipping")
    sink.fault("refuse bad")
    scene.put("one", v="bad")
    scene.put("two", v="bad")
    scene.processes.start(sink.name)
    scene.until(lambda: len(scene.list_parked(sink)) == 2)
    scene.connector("parked", "retry", sink.name, "--all")
    until(lambda: {entry["wanted"] for entry in scene.list_parked(sink)} == {None})
    assert len(scene.list_parked(sink)) == 2
    scene.connector("parked", "skip", sink.name, "--all")
    scene.until(lambda: scene.list_parked(sink) == [])
    assert sink.rows == {}
    scene.put("one", v="good")
    scene.until(lambda: sink.rows == {"one": {"v": "good"}})
    scene.connector("parked", "show", sink.name, "0123456789", code=1)


def test_too_many_refused_rows_are_a_failure_of_the_connector(scene: Scene) -> None:
    sink = scene.sink("overflowing", parked_max=2)
    sink.fault("refuse bad")
    for number in range(5):
        scene.put(f"row{number}", v="bad")
    scene.processes.start(sink.name)
    scene.until(lambda: "TooManyParked" in scene.connector("status", sink.name))
    assert scene.list_parked(sink) == []
    sink.mend()
    scene.until(lambda: len(sink.rows) == 5)


def test_a_sink_that_is_away_is_waited_for(scene: Scene) -> None:
    sink = scene.sink("waiting")
    sink.fault("unavailable")
    scene.put("first", v=1)
    scene.processes.start(sink.name)
    scene.until(lambda: scene.status(sink)["state"] == "sink away")
    status = scene.status(sink)
    assert "the file is away" in status["processes"][0]["last_error"]
    sink.mend()
    scene.until(lambda: sink.rows == {"first": {"v": 1}})
    scene.until(lambda: "the sink is unavailable" in scene.connector("logs", sink.name))


def test_one_that_fails_is_begun_again_and_others_do_not_notice(scene: Scene) -> None:
    failing, healthy = (scene.sink(name) for name in ("failing", "healthy"))
    failing.fault("fail")
    scene.put("first", v=1)
    scene.processes.start(failing.name, healthy.name)
    scene.until(lambda: healthy.rows == {"first": {"v": 1}})
    scene.until(
        lambda: "RuntimeError: the sink has a fault" in scene.connector("status", failing.name)
    )
    assert failing.rows == {}
    failing.mend()
    scene.until(lambda: failing.rows == {"first": {"v": 1}})


def test_the_work_is_divided_between_processes(scene: Scene) -> None:
    sink = scene.sink("divided")
    for at in ("e", "m", "t"):
        shards = scene.client.call_json("RowtideListShards", {"table": scene.table})["shards"]
        last = [shard["shard"] for shard in shards if shard["state"] == "open"][-1]
        scene.client.call_json("RowtideSplitShard", {"table": scene.table, "shard": last, "at": at})
    for _ in range(2):
        scene.processes.start(sink.name)

    def shares() -> list[int]:
        status = scene.status(sink)
        return [report["shards"] for report in status["processes"]]

    until(lambda: shares() == [2, 2], message=lambda: (shares(), scene.processes.said()))
    for letter in "aeimquy":
        scene.put(letter, v=letter)
    scene.until(lambda: sink.rows.keys() == set("aeimquy"))


def test_a_paused_one_is_rewound_to_the_rows_and_a_deleted_one_begins_anew(scene: Scene) -> None:
    sink = scene.sink("rewound")
    scene.put("kept", v=1)
    scene.processes.start()
    scene.until(lambda: sink.rows.keys() == {"kept"})
    scene.connector("pause", sink.name)
    scene.put("later", v=2)
    status = scene.status(sink)
    assert (status["state"], status["lag"]["records"]) == ("paused", 1)
    # What the target lost comes back with the rows, as does what was written meanwhile.
    Path(sink.path).unlink()
    scene.connector("rewind", sink.name, "rows")
    scene.connector("resume", sink.name)
    scene.until(lambda: sink.rows.keys() == {"kept", "later"})
    scene.connector("delete", sink.name, "--yes")
    assert sink.name not in scene.connector("list")
    scene.put("after", v=3)
    again = scene.sink("rewound", begin="oldest")
    scene.until(lambda: again.rows.keys() == {"kept", "later", "after"})
    scene.connector("delete", sink.name, "--yes")
