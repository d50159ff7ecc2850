"""What the examples share: a server on this machine, and the lines that say what was proved."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.console_link import read_console_url
from rowtide.cli.more_workers import PARENT, but_settings
from rowtide.client import AsyncClient, Inbox, InboxEntry
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.deploy.up import NotReady, Ready, Up

__all__ = ["LocalServer", "Proofs", "declare_fan_out", "read_inbox", "run_example"]

START_S_MAX = 60.0
WAIT_S_MAX = 60.0
"""A fan-out starts within two seconds; longer on a busy machine."""
POLL_S = 0.05
OUTPUT_SHOWN_MAX = 4000
OPTIONS = ("--port", "0", "--table-operations-per-s", "0")


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A running ``rowtide dev``. ``folder`` is removed at the end."""

    ready: Ready
    folder: Path

    @property
    def access(self) -> dict[str, Any]:
        """The arguments of a client."""
        return self.ready._asdict()

    def admin(self) -> ProtocolClient:
        """Return a connection for rowtide's own operations."""
        return ProtocolClient(**self.access)

    def share(self, table: str, key: str) -> str:
        """Return a token that may follow one partition key of a table, and do nothing else."""
        with self.admin() as admin:
            made = admin.call_json("RowtideCreateToken", {"table": table, "key": key})
        return str(made["token"])

    def advance_clock(self, seconds: int) -> None:
        """Advance the clock of a server with ``--test-clock``."""
        with self.admin() as admin:
            admin.call_json("RowtideAdvanceClock", {"by_us": seconds * 1_000_000})

    async def console_url(self) -> str:
        """Return the console's address once it serves: it starts beside the server."""
        async with asyncio.timeout(START_S_MAX):
            while True:
                if url := read_console_url(self.folder / "data"):
                    return url
                await asyncio.sleep(POLL_S)


class Proofs:
    """Prints what an example proved, one line each. ``hold`` is False after a failed one."""

    def __init__(self) -> None:
        self.hold = True

    def check(self, name: str, words: str, holds: bool) -> None:
        """Print a proof and whether it holds."""
        click.echo(f"  {name:<10} {words}: ", nl=False)
        click.secho("proved" if holds else "FAILED", fg="green" if holds else "red")
        self.hold = self.hold and holds


def run_example(
    example: Callable[[LocalServer, Proofs], Awaitable[None]],
    *options: str,
    ephemeral: bool = False,
) -> None:
    """Run an example on a new server; exit with 1 if a proof fails. Ctrl-C ends both."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    proofs = Proofs()
    began_s = time.monotonic()

    async def prove(server: LocalServer) -> None:
        await example(server, proofs)

    with tempfile.TemporaryDirectory(prefix="rowtide-timeline-") as name:
        folder = Path(name)
        log = folder / "server.log"
        # A server whose parent was killed ends, too.
        environment = {**but_settings(os.environ), PARENT: str(os.getpid()), "TMPDIR": name}
        try:
            with (
                log.open("wb") as output,
                Up(
                    folder / "data",
                    options=(*OPTIONS, *options),
                    output=output,
                    command="dev",
                    environment=environment,
                    ephemeral=ephemeral,
                ) as up,
            ):
                asyncio.run(prove(LocalServer(up.start(timeout_s=START_S_MAX), folder)))
        except NotReady as error:
            printed = log.read_text(encoding="utf-8", errors="replace")
            sys.exit(f"{error}; it printed:\n{printed[-OUTPUT_SHOWN_MAX:]}")
        except KeyboardInterrupt:
            click.echo("\nStopped.")
            sys.exit(130)
    click.echo(f"\n  {time.monotonic() - began_s:.1f} s in all, the server's start included.")
    sys.exit(0 if proofs.hold else 1)


async def declare_fan_out(client: AsyncClient, *, table: str, **sink: object) -> None:
    """Have the server's connector process write the inboxes, as ``rowtide connector apply``."""
    document = {"table": table, "sink": {"kind": "timeline", **sink}}
    await Declarations(client.endpoint).declare(parse_document("inboxes", document))


async def read_inbox(inbox: Inbox, count: int) -> list[InboxEntry]:
    """Return an inbox, the oldest entry first, once it has so many entries."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            found = [entry async for entry in inbox.after(0)]
            if len(found) >= count:
                return found
            await asyncio.sleep(POLL_S)  # The fan-out works in another process.
