"""Every system of the demo: two MariaDBs, OpenSearch, rowtide with its broker, four connector
processes. Each can be killed with kill -9, and comes back as a service manager would bring it back.
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

from demo.replication.declarations import RUNNERS, declared
from demo.replication.origin import DATABASE
from demo.replication.processes import Kept, command, tethered
from demo.servers.mariadb import MariaDB
from demo.servers.opensearch import OpenSearch
from demo.servers.server import children
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.kafka.tether import TetheredProcess
from rowtide.deploy.up import Ready, Up

__all__ = ["Systems"]

ALONE = ("--connectors", "false")
"""Connectors run in processes of their own here, so that each can be killed alone."""

BACK_S = 1.0
"""A killed server stays away for so long."""


class Systems:
    """All of them, in ``folder``; a context manager that ends what was started."""

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
        """Start the database that everything comes from."""
        self._closing.enter_context(self.origin)

    def start_targets(self) -> None:
        """Start what the rows go to."""
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
        file.write_text(declared(self.origin.port, self.replica.port, self.search.port))
        done = self._run("connector", "apply", str(file))
        if done:
            raise RuntimeError(f"rowtide connector apply ended with {done}, see {self._log('cli')}")

    def start_connectors(self) -> None:
        """Declare the connectors, and start a process for each of ``RUNNERS``."""
        self._apply()
        for name, connectors in RUNNERS.items():
            arguments = command("connector", "run", *connectors)
            arguments += ["--folder", str(self.folder / "connectors")]
            kept = Kept(name, lambda a=arguments, n=name: self._started(a, n))  # type: ignore[misc]
            self._runners[name] = kept
            self._closing.callback(kept.stop)

    def kills(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Give what can be killed, by its name, with how; the process is back when it returns."""
        for name, kept in self._runners.items():
            yield name, kept.kill
        yield "rowtide's worker", self._kill_worker
        yield "Kafka's broker", self._kill_broker
        yield "OpenSearch", lambda: self._kill_server(self.search)
        yield "the second MariaDB", lambda: self._kill_server(self.replica)
        yield "the first MariaDB", lambda: self._kill_server(self.origin)

    def environment(self) -> dict[str, str]:
        """Return what commands of rowtide need to find the server."""
        ready = self.ready._asdict()
        return {**os.environ, **{f"ROWTIDE_{name.upper()}": value for name, value in ready.items()}}

    def _started(self, arguments: list[str], name: str) -> TetheredProcess:
        return tethered(arguments, self.folder, self._log(name), self.environment())

    def _run(self, *arguments: str) -> int:
        child = self._started(command(*arguments), "cli")
        while child.returncode() is None:
            time.sleep(0.05)
        return child.terminate(0)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _kill_worker(self) -> None:
        """Kill ``rowtide up``; its broker ends with it, and both begin again on their folder."""
        assert self._up is not None, "not started"
        self._up.kill()
        time.sleep(BACK_S)
        port = self.ready.endpoint.rpartition(":")[2]
        self._up.options = ("--port", port, *ALONE)
        self._up.start()

    def _kill_broker(self) -> None:
        """Kill the broker alone; rowtide starts another one."""
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
