"""A server for a test session: ``rowtide dev --ephemeral`` as a child process.

The child is stopped by SIGTERM, and removes its directory then. Where pytest itself is killed, the
child notices within a second that its parent has gone, and stops too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rowtide.cli.client import NoAnswer, ProtocolClient
from rowtide.cli.more_workers import PARENT, but_settings
from rowtide.deploy.up import NotReady, Up
from rowtide.testing.instance import InstanceAccess

__all__ = ["Server", "running_server"]

START_S_MAX = 60.0
"""A start takes half a second; a machine with too much to do takes longer."""

SAID_MAX = 4000
"""Characters of the server's log that are shown where it does not start: its end."""

OPTIONS = (
    *("--port", "0"),
    # Each test makes tables: how often is no matter of the test.
    *("--table-operations-per-s", "0"),
)
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Server:
    """How a running server is reached, by a key pair with every right.

    ``instance`` is the one that it was made with; ``log_file`` is what it prints.
    """

    endpoint: str
    instance: str
    access_key_id: str
    access_key_secret: str = field(repr=False)
    log_file: Path

    def client(self) -> ProtocolClient:
        """Return a connection of rowtide's own client to the first instance."""
        return self._instance(self.instance).admin()

    @contextmanager
    def new_instance(self) -> Iterator[InstanceAccess]:
        """Yield a fresh instance; it is dropped at the end, with all its tables.

        A server has ten instances at most.
        """
        instance = self._instance(f"test-{next(_numbers)}")
        with self.client() as client:
            client.call_json("RowtideCreateInstance", {"name": instance.name})
        try:
            yield instance
        finally:
            instance.close()
            with suppress(NoAnswer):  # The test may have stopped the server.
                _drop(instance)

    def _instance(self, name: str) -> InstanceAccess:
        return InstanceAccess(self.endpoint, name, self.access_key_id, self.access_key_secret)


def _drop(instance: InstanceAccess) -> None:
    with instance.admin() as client:
        for table in client.list_table():
            client.delete_table(table)
        client.call_json("RowtideDeleteInstance", {"name": instance.name})


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[Server]:
    """Yield a server that runs until the end. ``folder`` takes its log and its files.

    Raises ``NotReady``, with what the server printed, where it does not start.
    """
    log_file = folder / "server.log"
    environment = {**but_settings(os.environ), PARENT: str(os.getpid()), "TMPDIR": str(folder)}
    with log_file.open("wb") as output:
        up = Up(
            folder / "server",
            options=[*OPTIONS, *options],
            output=output,
            command="dev",
            environment=environment,
            ephemeral=True,
        )
        with up:
            try:
                ready = up.start(timeout_s=START_S_MAX)
            except NotReady as error:
                said = log_file.read_text(encoding="utf-8", errors="replace")
                raise NotReady(f"{error}; it printed:\n{said[-SAID_MAX:]}") from None
            yield Server(*ready, log_file)
