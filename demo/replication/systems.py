"""All systems of the demo: two MariaDBs, OpenSearch, rowtide with its broker, connector processes.

Each can be killed with kill -9, and is restarted as by a service manager.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from demo.replication.declarations import RUNNERS, declaration_text
from demo.replication.origin import DATABASE
from demo.replication.processes import Kept, command, start_tethered
from demo.servers.mariadb import MariaDB
from demo.servers.opensearch import OpenSearch
from demo.servers.server import children
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.kafka.tether import TetheredProcess
from rowtide.deploy.up import Ready, Up

__all__ = ["Systems"]

ALONE = ("--connectors", "false")
"""Connectors run in separate processes here, so that each can be killed alone."""

BACK_S = 1.0
"""Time for which a killed server stays down."""


class Systems:
    """All systems, in ``folder``; a context manager that ends those that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        cache_dir = default_cache_dir(os.environ, sys.platform)
        self.origin = MariaDB(folder / "origin", cache_dir)
        self.replica = MariaDB(folder / "replica", cache_dir, options=("--skip-log-bin",))
        self.search = OpenSearch(folder / "search", cache_dir)
        self.ready = Ready("", "", "", "")
        self._closing = ExitStack()
        self._up: Up | None = None
        self._runners: dict[str, Kept] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def start_origin(self) -> None:
        """Start the origin's database."""
        self._closing.enter_context(self.origin)

    def start_targets(self) -> None:
        """Start the targets."""
        self._closing.enter_context(self.replica)
        self._closing.enter_context(self.search)
        self.replica.execute(f"CREATE DATABASE {DATABASE}")

    def start_rowtide(self) -> None:
        """Start rowtide on an embedded broker."""
        output = self._closing.enter_context((self.folder / "rowtide.log").open("ab"))
        up = self._up = Up(self.folder / "rowtide", options=("--port", "0", *ALONE), output=output)
        self._closing.callback(up.stop)
        self.ready = up.start()

    def _apply(self) -> None:
        file = self.folder / "replication.yaml"
        file.write_text(declaration_text(self.origin.port, self.replica.port, self.search.port))
        done = self._run("connector", "apply", str(file))
        if done:
            raise RuntimeError(f"rowtide connector apply ended with {done}, see {self._log('cli')}")

    def start_connectors(self) -> None:
        """Declare the connectors, and start a process for each of ``RUNNERS``."""
        self._apply()
        for name, connectors in RUNNERS.items():
            arguments = command("connector", "run", *connectors)
            arguments += ["--folder", str(self.folder / "connectors")]
            kept = Kept(name, lambda a=arguments, n=name: self._start_command(a, n))  # type: ignore[misc]
            self._runners[name] = kept
            self._closing.callback(kept.stop)

    def kills(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each process's name, and a function that kills it and waits for its return."""
        for name, kept in self._runners.items():
            yield name, kept.kill
        yield "rowtide's worker", self._kill_worker
        yield "Kafka's broker", self._kill_broker
        yield "OpenSearch", lambda: self._kill_server(self.search)
        yield "the second MariaDB", lambda: self._kill_server(self.replica)
        yield "the first MariaDB", lambda: self._kill_server(self.origin)

    def environment(self) -> dict[str, str]:
        """Return the environment in which commands of rowtide find the server."""
        ready = self.ready._asdict()
        return {**os.environ, **{f"ROWTIDE_{name.upper()}": value for name, value in ready.items()}}

    def _start_command(self, arguments: list[str], name: str) -> TetheredProcess:
        return start_tethered(arguments, self.folder, self._log(name), self.environment())

    def _run(self, *arguments: str) -> int:
        child = self._start_command(command(*arguments), "cli")
        while child.returncode() is None:
            time.sleep(0.05)
        return child.terminate(0)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _kill_worker(self) -> None:
        """Kill ``rowtide up``, which ends its broker too, and start it again on its directory."""
        assert self._up is not None, "not started"
        self._up.kill()
        time.sleep(BACK_S)
        port = self.ready.endpoint.rpartition(":")[2]
        self._up.options = ("--port", port, *ALONE)
        self._up.start()

    def _kill_broker(self) -> None:
        """Kill only the broker; rowtide starts another one."""
        assert self._up is not None, "not started"
        for pid in children(self._up.pid):
            if "kafka.Kafka" in _command_line(pid):
                os.kill(pid, signal.SIGKILL)

    def _kill_server(self, server: MariaDB | OpenSearch) -> None:
        server.kill()
        time.sleep(BACK_S)
        server.start()


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
