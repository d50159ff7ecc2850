"""A server and a console, each its own process, that tests kill and start again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client
from rowtide.client.table_requests import create_request
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Child, Ready, Up
from tests.support.copies import launch, start
from tests.support.servers import LOG_OPTIONS
from tests.support.waiting import until

__all__ = ["Stage", "on_stage"]

ROWTIDE = Path(sys.executable).with_name("rowtide")
HOST = "127.0.0.1"


class Stage:
    """Both processes of one data directory, on ports that stay the same."""

    def __init__(self, folder: Path, output: IO[bytes]) -> None:
        ports = free_ports(HOST)
        self._server_port, self._console_port = next(ports), next(ports)
        self._folder = folder
        self._output = output
        options = (*LOG_OPTIONS, "--port", str(self._server_port), "--console", "false")
        self._up = Up(folder / "data", options=options, output=output, launch=launch)
        self._console: Child | None = None
        self.ready = Ready("", "", "", "")
        self.sessions: dict[str, Any] = {}
        """The cookies of a session by access key, for visitors who may share it."""

    @property
    def url(self) -> str:
        """Address of the console."""
        return f"http://{HOST}:{self._console_port}"

    @property
    def data_dir(self) -> Path:
        """Directory of the server's rows and keys."""
        return self._folder / "data"

    def start_server(self) -> None:
        """Start the server."""
        self.ready = self._up.start()

    def kill_server(self) -> None:
        """Kill the server."""
        self._up.kill()

    def stop_server(self) -> None:
        """Stop the server."""
        self._up.stop()

    def start_console(self) -> None:
        """Start the console and wait until it serves."""
        place = self._folder / "console.json"
        place.unlink(missing_ok=True)
        words = [
            *("console", "run", "--port", str(self._console_port)),
            *("--ready-file", str(place), "--endpoint", self.ready.endpoint),
            *("--data-dir", str(self.data_dir)),
        ]
        self._console = start("console", words, output=self._output, error=self._output)
        until(lambda: place.exists() and json.loads(place.read_text()), self.output)

    def kill_console(self) -> None:
        """Kill the console."""
        self._end_console(signal.SIGKILL)

    def stop_console(self) -> None:
        """Stop the console."""
        self._end_console(signal.SIGTERM)

    def pause_console(self, *, is_paused: bool) -> None:
        """Stop all of the console's threads, or let them go on."""
        assert self._console is not None
        os.kill(self._console.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)

    def _end_console(self, how: signal.Signals) -> None:
        child, self._console = self._console, None
        if child is not None:
            child.send_signal(how)
            child.wait(30)

    def connect(self) -> Client:
        """Return a client of the server."""
        return Client(
            self.ready.endpoint,
            instance=self.ready.instance,
            access_key_id=self.ready.access_key_id,
            access_key_secret=self.ready.access_key_secret,
        )

    def create_table_keeping(self, table: str, columns: Sequence[str]) -> None:
        """Create a table of orders whose stream keeps columns as they were before a change."""
        request = create_request(
            table,
            {"customer": str, "number": int},
            defined={},
            indexes=(),
            max_versions=5,
            time_to_live_s=None,
            stream_hours=24,
        )
        request.stream_spec.columns_to_get.extend(columns)
        with ProtocolClient(**self.ready._asdict(), timeout_s=30.0) as client:
            client.call("CreateTable", request, pb.CreateTableResponse)

    def run(self, *words: str) -> str:
        """Run ``rowtide`` on the data directory and return what it printed."""
        command = [ROWTIDE, *words, "--data-dir", self.data_dir]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def output(self) -> str:
        """Return what both processes printed."""
        return (self._folder / "output").read_text(errors="replace")


@contextmanager
def on_stage(folder: Path) -> Iterator[Stage]:
    """Run a server and a console until the end, whatever was done to them."""
    with (folder / "output").open("wb") as output:
        stage = Stage(folder, output)
        try:
            stage.start_server()
            stage.start_console()
            yield stage
        finally:
            stage.stop_console()
            stage.stop_server()
