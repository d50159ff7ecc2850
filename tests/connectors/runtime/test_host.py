"""A process's report of a connector is there for as long as the connector runs in it."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.declarations import DeclaredConnector
from rowtide.connectors.runtime.host import LOOK_S, Host
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.connectors.runtime.status_board import Report
from tests.simulation.virtual_time import in_virtual_time

NAME = "c"


class Declarations:
    """One connector, which may rest."""

    paused = False

    def __init__(self, endpoint: Endpoint) -> None:
        pass

    async def all(self) -> dict[str, DeclaredConnector]:
        found = parse_document(NAME, {"table": "t", "sink": {"kind": "duckdb"}})
        return {NAME: DeclaredConnector(NAME, found, found.text, self.paused, 0)}


class Board:
    """Reports; they are withdrawn once they may be."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.reports: set[str] = set()
        self.withdrawing, self.go = asyncio.Event(), asyncio.Event()

    async def report(self, connector: str, report: Report) -> None:
        self.reports.add(connector)

    async def withdraw(self, connector: str, process: str) -> None:
        self.withdrawing.set()
        await self.go.wait()
        self.reports.discard(connector)


class Run(SinkRun):
    """A connector that does nothing until it is to stop."""

    running = 0

    async def run(self) -> None:
        Run.running += 1
        await self._stopping.wait()
        Run.running -= 1


async def _pause_and_go_on(host: Host, board: Board, declarations: Declarations) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(host.run(stop))
        await asyncio.sleep(LOOK_S / 2)
        assert (Run.running, board.reports) == (1, {NAME})
        declarations.paused = True
        await board.withdrawing.wait()
        declarations.paused = False
        await asyncio.sleep(2 * LOOK_S)
        board.go.set()
        for _ in range(40):
            await asyncio.sleep(LOOK_S / 10)
            assert not Run.running or board.reports == {NAME}
        assert Run.running == 1
        stop.set()
    assert board.reports == set()


def test_a_report_that_is_withdrawn_late_is_not_the_next_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a client that pauses the connector sees no process, and removes its leases."""

    async def program() -> None:
        where = "http://127.0.0.1:1"
        endpoint = Endpoint(where, instance="i", access_key_id="k", access_key_secret="s")
        host = Host(ProcessContext(endpoint, {}, ""))
        board, declarations = Board(endpoint), Declarations(endpoint)
        monkeypatch.setattr(host, "_board", board)
        [connectors] = host._kinds
        monkeypatch.setattr(connectors, "_declarations", declarations)
        await _pause_and_go_on(host, board, declarations)

    monkeypatch.setattr("rowtide.connectors.runtime.host.SinkRun", Run)
    in_virtual_time(program())
