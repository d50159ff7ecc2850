"""A worker whose disk is full rejects a dashboard's state: it waits, says so, and loses nothing.

The server's directory is on a small file system of its own, which only root may mount.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError, Write
from rowtide.client.wire_row import Put
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, flight, numbers_of
from tests.dashboards.runtime.test_dashboard_run import wait_until_shown
from tests.support.servers import serving
from tests.support.waiting import until
from tests.system.small_disk import PIECE, Ballast, NoDisk, small_disk

pytestmark = pytest.mark.system

DISK_BYTES = 300 << 20
FREE_BYTES_MIN = 100 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    with ExitStack() as closing:
        try:
            yield closing.enter_context(small_disk(tmp_path / "disk", DISK_BYTES))
        except NoDisk as error:
            pytest.skip(str(error))


@pytest.fixture
def server(disk: Path) -> Iterator[Ready]:
    """A server on the small file system, of which some must stay free."""
    options = ("--table-operations-per-s", "0", "--connectors", "false")
    with serving(disk, *options, "--free-bytes-min", str(FREE_BYTES_MIN)) as ready:
        yield ready


def is_rejected(server: Ready, table: str) -> bool:
    """Write a row that a test deletes later; return whether the server rejects it."""
    write = Write("PUT", [("id", "probe")], [Put("carrier", "probe")])
    with ProtocolClient(**server._asdict()) as client:
        try:
            [failure] = client.batch_write_row({table: [write]})
        except ServerError:
            return True
    return failure is not None


def test_a_dashboard_waits_until_there_is_space(
    server: Ready,
    disk: Path,
    rows: ProtocolClient,
    rowtide: Run,
    processes: ConnectorProcesses,
    tmp_path: Path,
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(100)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "crowded"))
    processes.start()
    wait_until_shown(rowtide, "crowded", flights)
    before = numbers_of(rowtide("dashboard", "show", "crowded", "-o", "json"))
    processes.kill()
    flights.put({f"g{n}": flight(n) for n in range(50)})
    flights.update("f0", {"delay": 3.25})
    flights.delete("f1", "f2")

    ballast = Ballast(disk)
    ballast.leave(FREE_BYTES_MIN - PIECE)
    until(lambda: is_rejected(server, flights.table))
    processes.start()

    def status() -> Any:
        return rowtide("dashboard", "status", "crowded", "-o", "json")[0]

    until(lambda: status()["state"] == "waiting", status)
    [trouble] = [text for text in status()["troubles"] if "bytes free" in text]
    assert f"Writes are rejected below {FREE_BYTES_MIN:,}." in trouble
    assert status()["lag"]["records"] > 0
    assert numbers_of(rowtide("dashboard", "show", "crowded", "-o", "json")) == before
    assert "did not catch up" in rowtide(
        "verify", "dashboard", "crowded", "--wait-s", "0.1", code=3
    )

    ballast.drop()
    until(lambda: not is_rejected(server, flights.table))
    flights.delete("probe")
    wait_until_shown(rowtide, "crowded", flights)
    until(lambda: status()["state"] == "ready", status)
    assert not [text for text in status()["troubles"] if "bytes free" in text]
    assert ": equal" in rowtide("verify", "dashboard", "crowded")
