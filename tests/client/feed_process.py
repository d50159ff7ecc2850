"""A reader of changes as a process: it appends a line per change to a file until SIGTERM.

Run as a program, with how to reach the server as JSON, and the form of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from typing import Any

from rowtide.client import AsyncClient, Change, Client, FollowerSettings

SETTINGS = FollowerSettings(lease_s=3.0, checkpoint_s=0.0, batch_changes_max=10)


def main() -> None:
    """Read until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("access", "form", "table", "consumer", "file"):
        parser.add_argument(f"--{name}", required=True)
    wanted = parser.parse_args()
    file = os.open(wanted.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    options = {"consumer": wanted.consumer, "settings": SETTINGS}
    access = json.loads(wanted.access)
    if wanted.form == "plain":
        read(access, file, wanted.table, options)
    else:
        asyncio.run(read_in_a_loop(access, file, wanted.table, options))


def note(file: int, change: Change) -> None:
    """Append a line, which names the process too."""
    line = [os.getpid(), change.row["a"], change.row["n"], change.stamp]
    os.write(file, json.dumps(line).encode() + b"\n")


def read(access: Any, file: int, table: str, options: Any) -> None:
    """Read with the form that blocks."""
    with Client(**access) as client:
        feed = client.changes(table, **options)
        signal.signal(signal.SIGTERM, lambda *_: feed.stop())
        for change in feed:
            note(file, change)


async def read_in_a_loop(access: Any, file: int, table: str, options: Any) -> None:
    """Read with the form for an event loop."""
    async with AsyncClient(**access) as client:
        feed = client.changes(table, **options)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, feed.stop)
        async for change in feed:
            note(file, change)
            await asyncio.sleep(0)


if __name__ == "__main__":
    main()
