"""The clients of the benchmark with the Go SDK: programs in Go, and our own load generator.

A client first prepares a step, then runs it: what it prepares is in no figure. Programs in Go are
built once and take commands on standard input; their sources stand in ``tests/bench/go``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, Self

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.bench.measure import all_written, has_row, scan
from tests.bench.report import percentile
from tests.bench.traffic import KEY, Channel, Refused, Requests, run_closed_loop

__all__ = ["BATCH_ROWS", "GoClient", "OwnClient", "Step", "StepResult", "build_go"]

SOURCES = Path(__file__).parent / "go"
BATCH_ROWS = 200
STREAM_HOURS = 24
BUILD_S_MAX = 600.0
"""The first build downloads the modules; a later one takes seconds."""


class Step(NamedTuple):
    """What is asked of a client: ``operation`` on ``rows`` rows of ``table`` from ``first`` on.

    A ``range`` expects so many rows in the table and is made ``repeat`` times.
    """

    operation: str
    table: str
    connections: int
    first: int
    rows: int
    repeat: int = 1


class StepResult(NamedTuple):
    """What a client saw: rows, seconds, and milliseconds of single calls."""

    rows: int
    seconds: float
    p50_ms: float
    p99_ms: float


class StepClient(Protocol):
    """A client of one server. ``pid`` is the process that is the client."""

    name: str

    @property
    def pid(self) -> int: ...
    def prepare(self, step: Step) -> Callable[[], StepResult]: ...
    def close(self) -> None: ...


def build_go(program: str, target: Path) -> Path:
    """Build one of the programs in Go into a folder and return its path."""
    sources = target / "go"
    if not sources.exists():
        shutil.copytree(SOURCES, sources)
    command = ["go", "build", "-mod=readonly", "-o", str(target / program), f"./{program}"]
    subprocess.run(command, cwd=sources, check=True, timeout=BUILD_S_MAX)
    return target / program


class GoClient:
    """A program in Go that runs one step after another."""

    def __init__(self, name: str, program: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._child = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    @classmethod
    def of_sdk(cls, program: Path, ready: Ready) -> Self:
        """Return a client that uses the official SDK."""
        environment = {
            "ROWTIDE_ENDPOINT": ready.endpoint,
            "ROWTIDE_INSTANCE": ready.instance,
            "ROWTIDE_KEY_ID": ready.access_key_id,
            "ROWTIDE_KEY_SECRET": ready.access_key_secret,
        }
        return cls("Go SDK", program, environment)

    @property
    def pid(self) -> int:
        return self._child.pid

    def prepare(self, step: Step) -> Callable[[], StepResult]:
        """Return what runs a step."""
        line = json.dumps({"do": step.operation, **step._asdict()}) + "\n"
        return lambda: self._ask(line)

    def _ask(self, line: str) -> StepResult:
        requests, answers = _pipes(self._child)
        requests.write(line)
        requests.flush()
        answer = answers.readline()
        if not answer:
            raise Refused(f"{self.name} ended with exit code {self._child.wait()}")
        document = json.loads(answer)
        if error := document.pop("error"):
            raise Refused(f"{self.name}: {error}")
        return StepResult(**document)

    def close(self) -> None:
        """End the program: it ends with its input."""
        for pipe in _pipes(self._child):
            pipe.close()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _pipes(child: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert child.stdin is not None, "started with pipes"
    assert child.stdout is not None, "started with pipes"
    return child.stdin, child.stdout


class OwnClient:
    """Our own load generator, in this process: requests are encoded and signed beforehand."""

    name = "own"
    pid = os.getpid()

    def __init__(self, ready: Ready) -> None:
        self._ready = ready

    def prepare(self, step: Step) -> Callable[[], StepResult]:
        """Return what runs a step."""
        table = Requests(self._ready, step.table)
        numbers = range(step.first, step.first + step.rows)
        match step.operation:
            case "create":
                return lambda: self._create(step)
            case "put":
                return self._loop(step, [table.put(number) for number in numbers], _anything)
            case "get":
                return self._loop(step, [table.get(number) for number in numbers], has_row)
            case "batch":
                batches = [numbers[at : at + BATCH_ROWS] for at in range(0, step.rows, BATCH_ROWS)]
                return self._loop(step, [table.batch(batch) for batch in batches], all_written)
            case "range":
                return lambda: _run(self._scan(table, step))
            case "drain":
                return lambda: _run(self._drain(table, step))
        raise ValueError(f"unknown step: {step.operation}")

    def close(self) -> None:
        """Nothing stays open between steps."""

    def _create(self, step: Step) -> StepResult:
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=STREAM_HOURS)
        with ProtocolClient(**self._ready._asdict()) as client:
            client.create_table(step.table, KEY, stream=stream)
        return StepResult(0, 0.0, 0.0, 0.0)

    def _loop(
        self, step: Step, requests: list[bytes], check: Callable[[bytes], None]
    ) -> Callable[[], StepResult]:
        async def run() -> StepResult:
            timings = await run_closed_loop(
                self._ready.endpoint, requests, connections=step.connections, check=check
            )
            return _summarise(step.rows, timings.elapsed_s, timings.calls)

        return lambda: _run(run())

    async def _scan(self, table: Requests, step: Step) -> StepResult:
        calls: list[float] = []
        channel = await Channel.open(self._ready.endpoint)
        began = time.perf_counter()
        for _ in range(step.repeat):
            await scan(channel, table, calls)
        result = _summarise(step.rows * step.repeat, time.perf_counter() - began, calls)
        channel.close()
        return result

    async def _drain(self, table: Requests, step: Step) -> StepResult:
        with ProtocolClient(**self._ready._asdict()) as client:
            stream = client.list_stream(table.table)[0].stream_id
            shard = client.describe_stream(stream).shards[0].shard_id
            iterator: str | None = client.get_shard_iterator(stream, shard)
        channel = await Channel.open(self._ready.endpoint)
        calls, count, began = list[float](), 0, time.perf_counter()
        while iterator and count < step.rows:
            asked = time.perf_counter()
            page = pb.GetStreamRecordResponse.FromString(await channel.ask(table.stream(iterator)))
            calls.append(time.perf_counter() - asked)
            count += len(page.stream_records)
            iterator = page.next_shard_iterator
        result = _summarise(count, time.perf_counter() - began, calls)
        channel.close()
        return result


def _summarise(rows: int, seconds: float, calls: list[float]) -> StepResult:
    p50, p99 = (percentile(calls, percent) * 1000 for percent in (50, 99))
    return StepResult(rows, seconds, p50, p99)


def _anything(_body: bytes) -> None:
    """A put's answer says nothing more than that it is one."""


def _run(step: Coroutine[Any, Any, StepResult]) -> StepResult:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(step)
    return uvloop.run(step)
