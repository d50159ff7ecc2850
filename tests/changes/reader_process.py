"""A reader as a process: it appends a line per change to a file until it is stopped.

It runs as a program. Its argument says how to reach the server, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.deploy.up import Ready


def main() -> None:
    """Read until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("server", "table", "consumer", "file"):
        parser.add_argument(f"--{name}", required=True)
    wanted = parser.parse_args()
    file = os.open(wanted.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    asyncio.run(_read(Ready(**json.loads(wanted.server)), wanted.table, wanted.consumer, file))


async def _read(server: Ready, table: str, consumer: str, file: int) -> None:
    async def write(batch: Batch) -> None:
        for change in batch:
            line = [change.key[0][1], change.columns["n"], change.stamp]
            os.write(file, json.dumps(line).encode() + b"\n")
            await asyncio.sleep(0)

    async with Endpoint(**server._asdict()) as endpoint:
        leases = TableLeases(endpoint, consumer)
        settings = FollowerSettings(lease_s=1.0, checkpoint_s=0.2, batch_changes_max=10)
        worker = ChangeWorker(ApiSource(endpoint, table), leases, write, settings=settings)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


if __name__ == "__main__":
    main()
