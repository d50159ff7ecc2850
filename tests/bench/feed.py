"""Speed of the live feed: ``python -m tests.bench.feed`` (see ``--help``).

The server, its console and the viewers are processes of their own; this process writes. So with two
cores they all share them, as on a small machine.
"""

from __future__ import annotations

import asyncio
import json
import os
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
from tests.bench.feed_return import measure_return_s
from tests.bench.report import Result, as_markdown, percentile
from tests.console.feed.feed_client import FeedClient
from tests.support.consoles import RunningConsole, serving_console

BATCH_ROWS = 100
KEYS = 2000
PROBES_PER_S = 100
TEXT = "x" * 100
BACK_VIEWERS = 500
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
        for mode in ("every", "sampled"):
            results += asyncio.run(measure_delays(console, writers, mode, seconds))
        before_s = cpu_s_of(console)
        alone = writers.write(seconds=seconds, rate=rate)
        results.append(Result("changes written, no viewer", alone, "/s"))
        results += cpu_results("no viewer", before_s, cpu_s_of(console), alone * seconds)
        kinds = {
            "500 sampled viewers": [f"{writers.path}?mode=sampled"] * 500,
            "50 exact viewers": [writers.path] * 50,
            "2,000 viewers of one key each": [
                f"{writers.path}?key=k{number}" for number in range(KEYS)
            ],
        }
        load = Load(seconds, rate, alone)
        for name, paths in kinds.items():
            results += measure_kind(console, writers, name, paths, load)
        results.append(asyncio.run(measure_return(console, writers)))
    return results


class Load(NamedTuple):
    """What is written, and ``alone``: the changes per second without a viewer."""

    seconds: float
    rate: int
    alone: float


def measure_kind(
    console: RunningConsole, writers: Writers, name: str, paths: Sequence[str], load: Load
) -> list[Result]:
    """Return the figures of one kind of viewers."""
    seconds = load.seconds
    with following(console, writers.token, paths) as counts:
        before_s = cpu_s_of(console)
        written = writers.write(seconds=seconds, rate=load.rate)
        after_s = cpu_s_of(console)
        memory = memory_mib(console.pid)
    assert counts["ended"] == 0, f"{name}: {counts}"
    changes = written * seconds
    return [
        Result(f"changes written, {name}", written, "/s"),
        Result(f"write rate lost, {name}", max(0.0, 100 - 100 * written / load.alone), "%"),
        Result(f"records delivered, {name}", counts["records"] / seconds, "/s"),
        *cpu_results(name, before_s, after_s, changes),
        Result(f"CPU per change, {name}: viewers", 1e6 * counts["cpu_s"] / changes, "us"),
        Result(f"console memory, {name}", memory, "MiB"),
    ]


class CpuSeconds(NamedTuple):
    """CPU time that processes have used."""

    worker: float
    console: float


def cpu_s_of(console: RunningConsole) -> CpuSeconds:
    """Return the CPU time of a worker and its console so far."""
    endpoint = json.loads((console.folder / "data" / "endpoint.json").read_text())
    return CpuSeconds(_cpu_s(int(endpoint["pid"])), _cpu_s(console.pid))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_results(
    name: str, before_s: CpuSeconds, after_s: CpuSeconds, changes: float
) -> list[Result]:
    """Return the CPU time for each change that was written."""
    return [
        Result(f"CPU per change, {name}: {part}", 1e6 * (after - before) / changes, "us")
        for part, before, after in zip(CpuSeconds._fields, before_s, after_s, strict=True)
    ]


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


async def measure_delays(
    console: RunningConsole, writers: Writers, mode: str, seconds: float
) -> list[Result]:
    """Return how long after its answer a change reaches a viewer, at 100 changes per second."""
    headers = {"Authorization": f"Bearer {writers.token}"}
    follower = FeedClient(writers.path, headers=headers, mode=mode)
    answered: dict[int, float] = {}
    delays: list[float] = []
    left_out = 0
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
            content = event.get("data") or {}
            left_out += content.get("left_out", 0)
            for record in content.get("records", []):
                # Seen before the answer was noted: there was no delay.
                number = record["columns"]["n"]
                delays.append(max(0.0, seen_s - answered.get(number, seen_s)))
            if len(delays) + left_out == count:
                break
    return [
        Result(f"put answered -> viewer, mode={mode}, p{p}", percentile(delays, p) * 1000, "ms")
        for p in (50, 99)
    ]


async def measure_return(console: RunningConsole, writers: Writers) -> Result:
    """Return how long after a kill of the console its viewers are back without a gap."""
    keys = [f"k{number}" for number in range(BACK_VIEWERS)]

    async def write() -> None:
        rows = [PutRow(writers.table, {"k": key, "n": -1, "text": TEXT}) for key in keys]
        for first in range(0, len(rows), BATCH_ROWS):
            await asyncio.to_thread(writers.client.write, rows[first : first + BATCH_ROWS])

    paths = [f"{writers.path}?key={key}" for key in keys]
    taken_s = await measure_return_s(console, writers.token, paths, write, b'"n":-1,')
    return Result(f"{BACK_VIEWERS} viewers back after kill -9", taken_s, "s")


if __name__ == "__main__":
    main()
