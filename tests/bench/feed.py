"""Speed of the live feed: ``python -m tests.bench.feed`` (see ``--help``).

The server, its console and the viewers are processes of their own; this process writes. So with two
cores they all share them, as on a small machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client, PutRow
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.report import Result, as_markdown, percentile
from tests.console.feed.feed_client import FeedClient
from tests.support.consoles import RunningConsole, serving_console
from tests.support.waiting import until

BATCH_ROWS = 100
KEYS = 2000
PROBES_PER_S = 100
TEXT = "x" * 100
BACK_S_MAX = 60.0
LAST_S = 1.0
"""The last records may take so long to arrive; nothing tells when they have."""


@click.command(context_settings={"show_default": True})
@click.option("--seconds", default=10.0, help="Length of each measurement.")
@click.option("--rate", default=5000, help="Changes per second.")
def main(seconds: float, rate: int) -> None:
    """Measure the live feed and print a Markdown table."""
    click.echo(format_circumstances(circumstances("feed")))
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where,
        serving_console(Path(where), "--table-operations-per-s", "0") as console,
    ):
        click.echo(as_markdown(measure(console, seconds=seconds, rate=rate)))


class Writers(NamedTuple):
    """A table that is written, and how it is followed."""

    client: Client
    table: str
    path: str
    token: str

    def write(self, *, seconds: float, rate: int) -> float:
        """Write at a rate, or as fast as it goes; return the changes per second."""
        began_s = time.perf_counter()
        batches = 0
        while (now_s := time.perf_counter() - began_s) < seconds:
            ahead_s = batches * BATCH_ROWS / rate - now_s
            if ahead_s > 0:
                time.sleep(ahead_s)
            first = batches * BATCH_ROWS
            self.client.write(
                [
                    PutRow(self.table, {"k": f"k{number % KEYS}", "n": number, "text": TEXT})
                    for number in range(first, first + BATCH_ROWS)
                ]
            )
            batches += 1
        return batches * BATCH_ROWS / (time.perf_counter() - began_s)


def make_writers(console: RunningConsole) -> Writers:
    """Create a table with a stream, and a token to follow it."""
    ready = console.ready
    client = Client(
        ready.endpoint,
        instance=ready.instance,
        access_key_id=ready.access_key_id,
        access_key_secret=ready.access_key_secret,
    )
    client.create_table("feed", {"k": str}, stream_hours=24)
    with ProtocolClient(**ready._asdict()) as admin:
        token = admin.call_json("RowtideCreateToken", {"table": "feed"})["token"]
    return Writers(client, "feed", f"/stream/{ready.instance}/feed", token)


def measure(console: RunningConsole, *, seconds: float, rate: int) -> list[Result]:
    """Return all figures of a console that has just started."""
    results = [Result("console memory, idle", memory_mib(console.pid), "MiB")]
    writers = make_writers(console)
    with writers.client:
        results += asyncio.run(measure_delays(console, writers, seconds))
        alone = writers.write(seconds=seconds, rate=rate)
        results.append(Result("changes written, no viewer", alone, "/s"))
        kinds = {
            "500 sampled viewers": [f"{writers.path}?mode=sampled"] * 500,
            "50 exact viewers": [writers.path] * 50,
            "2,000 viewers of one key each": [
                f"{writers.path}?key=k{number}" for number in range(KEYS)
            ],
        }
        for name, paths in kinds.items():
            with following(console, writers.token, paths) as counts:
                written = writers.write(seconds=seconds, rate=rate)
                memory = memory_mib(console.pid)
            assert counts["ended"] == 0, f"{name}: {counts}"
            results += [
                Result(f"changes written, {name}", written, "/s"),
                Result(f"write rate lost, {name}", max(0.0, 100 - 100 * written / alone), "%"),
                Result(f"records delivered, {name}", counts["records"] / seconds, "/s"),
                Result(f"console memory, {name}", memory, "MiB"),
            ]
        results.append(asyncio.run(measure_return(console, writers)))
    return results


def memory_mib(pid: int) -> float:
    """Return the resident memory of one process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def following(
    console: RunningConsole, token: str, paths: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Follow feeds in a process; what they got is in the dictionary at the end."""
    counts: dict[str, Any] = {}
    command = [sys.executable, "-m", "tests.bench.feed_viewers"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as viewers:
        assert viewers.stdin is not None
        assert viewers.stdout is not None
        asked = {"port": console.port, "token": token, "paths": list(paths)}
        viewers.stdin.write(json.dumps(asked) + "\n")
        viewers.stdin.flush()
        line = viewers.stdout.readline()
        assert line == "ready\n", line
        yield counts
        time.sleep(LAST_S)
        viewers.stdin.close()
        counts.update(json.loads(viewers.stdout.readline()))


async def measure_delays(console: RunningConsole, writers: Writers, seconds: float) -> list[Result]:
    """Return how long after its answer a change reaches a viewer, at 100 changes per second."""
    headers = {"Authorization": f"Bearer {writers.token}"}
    follower = FeedClient(writers.path, headers=headers)
    answered: dict[int, float] = {}
    delays: list[float] = []
    count = int(seconds * PROBES_PER_S)

    async def write() -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number in range(count):
            await asyncio.sleep(max(0.0, began_s + number / PROBES_PER_S - loop.time()))
            row: dict[str, int | str] = {"k": f"k{number % KEYS}", "n": number, "text": TEXT}
            await asyncio.to_thread(writers.client.put, writers.table, row)
            answered[number] = time.perf_counter()

    async with asyncio.TaskGroup() as tasks, follower.connect(console.url) as events:
        await anext(events)
        tasks.create_task(write())
        async for event in events:
            seen_s = time.perf_counter()
            for record in (event.get("data") or {}).get("records", []):
                # Seen before the answer was noted: there was no delay.
                number = record["columns"]["n"]
                delays.append(max(0.0, seen_s - answered.get(number, seen_s)))
            if len(delays) == count:
                break
    return [
        Result(f"put answered -> viewer, p{p}", percentile(delays, p) * 1000, "ms")
        for p in (50, 99)
    ]


async def measure_return(console: RunningConsole, writers: Writers) -> Result:
    """Return how long after a kill of the console 500 viewers are back without a gap."""
    headers = {"Authorization": f"Bearer {writers.token}"}
    followers = [FeedClient(writers.path, headers=headers, key=f"k{n}") for n in range(500)]
    for follower in followers:
        await follower.take(console.url, "ready")
    before = console.pid
    os.kill(before, signal.SIGKILL)
    killed_s = time.perf_counter()
    rows = [PutRow(writers.table, {"k": f"k{n}", "n": -1, "text": TEXT}) for n in range(500)]
    for first in range(0, len(rows), BATCH_ROWS):
        await asyncio.to_thread(writers.client.write, rows[first : first + BATCH_ROWS])

    async def come_back(follower: FeedClient) -> None:
        while not follower.records:
            try:
                await follower.take(RunningConsole(*console).url, "records")
            except (OSError, AssertionError):
                await asyncio.sleep(random.uniform(0.1, 0.5))

    async with asyncio.timeout(BACK_S_MAX), asyncio.TaskGroup() as tasks:
        for follower in followers:
            tasks.create_task(come_back(follower))
    assert all(record["columns"]["n"] == -1 for f in followers for record in f.records)
    until(lambda: console.pid != before, "the console was started again")
    return Result("500 viewers back after kill -9", time.perf_counter() - killed_s, "s")


if __name__ == "__main__":
    main()
