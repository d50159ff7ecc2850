"""A server for a test session: ``rowtide dev --ephemeral`` as a child process.

SIGTERM stops the child, which then removes its directory. If pytest itself is killed, the child
notices within a second that its parent has ended, and stops too.
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
"""A start takes half a second; longer on an overloaded machine."""

OUTPUT_SHOWN_MAX = 4000
"""Characters of the log's end that are shown if the server does not start."""

OPTIONS = (
    *("--port", "0"),
    # Each test creates tables; the limit of their rate is not under test.
    *("--table-operations-per-s", "0"),
)
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Server:
    """The address of a running server, and a key pair with all rights.

    ``instance`` is its first instance; ``log_file`` has its output.
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
        """Yield a new instance, which is dropped at the end with all its tables.

        A server can have ten instances.
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
    """Yield a server that runs until the end. ``folder`` gets its log and its files.

    Raises ``NotReady`` with the server's output if it does not start.
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
                printed = log_file.read_text(encoding="utf-8", errors="replace")
                raise NotReady(f"{error}; it printed:\n{printed[-OUTPUT_SHOWN_MAX:]}") from None
            yield Server(*ready, log_file)
