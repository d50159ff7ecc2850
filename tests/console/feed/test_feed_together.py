"""Readers that reconnect at random moments miss nothing, whatever happens to shards and processes.

Server and consoles are real processes. Shards split, merge and move, and both kinds of processes
are killed. ``ROWTIDE_FEED_SEED`` repeats a run as far as chance here decides it.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client, OutcomeUnknown, Unavailable
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Child, Ready, Up
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.support.copies import launch, start
from tests.support.servers import LOG_OPTIONS
from tests.support.waiting import until, until_async

pytestmark = pytest.mark.system

SEED = int(os.environ.get("ROWTIDE_FEED_SEED", str(random.SystemRandom().randrange(10**6))))
NAMES = [f"{letter}{number}" for letter in "abcdefgh" for number in range(3)]
SLOTS = 4
CAUGHT_UP_S_MAX = 120.0
NOT_NOW = (Unavailable, OutcomeUnknown)


class Processes:
    """A server and a console at addresses that stay the same, killed and started again."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        # Below the ports that outgoing connections use: a reader that connects while nobody
        # listens might otherwise get that very port, and reach itself.
        ports = free_ports("127.0.0.1")
        options = [*LOG_OPTIONS, "--port", str(next(ports)), "--slots", str(SLOTS)]
        options += ["--console", "false", "--table-operations-per-s", "0"]
        self._output = closing.enter_context((folder / "output").open("wb"))
        self.server = closing.enter_context(
            Up(folder / "data", options=options, output=self._output, launch=launch)
        )
        self.ready: Ready = self.server.start()
        self._port = next(ports)
        self._folder = folder
        self._console: Child | None = None
        closing.callback(self.kill_console)

    @property
    def url(self) -> str:
        """Address of the console."""
        return f"http://127.0.0.1:{self._port}"

    def start_console(self) -> None:
        """Start the console and wait until it listens."""
        ready = self.ready
        words = ["console", "run", "--port", str(self._port)]
        words += ["--endpoint", ready.endpoint, "--instance", ready.instance]
        words += ["--access-key-id", ready.access_key_id]
        words += ["--access-key-secret", ready.access_key_secret]
        self._console = start(
            "console", words, folder=self._folder, output=self._output, error=self._output
        )
        until(self._listens, lambda: (self._folder / "output").read_text(errors="replace")[-3000:])

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def kill_console(self) -> None:
        """End the console as a crash would."""
        if self._console is not None:
            self._console.kill()
            self._console.wait()
            self._console = None

    def restart_console(self) -> None:
        """Kill the console and start another one, which knows nothing of the first."""
        self.kill_console()
        self.start_console()

    def restart_server(self) -> None:
        """Kill the server and start it again."""
        self.server.kill()
        self.server.start()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """A server and a console."""
    with ExitStack() as closing:
        running = Processes(tmp_path, closing)
        running.start_console()
        yield running


@pytest.fixture
def world(processes: Processes) -> Iterator[FeedWorld]:
    """A table with a stream, and a token to follow it."""
    made = FeedWorld(processes, random.Random(SEED))
    with made.client:
        yield made


class FeedWorld:
    """A table that is written while its shards change."""

    def __init__(self, processes: Processes, chance: random.Random) -> None:
        ready = processes.ready
        self.processes = processes
        self.chance = chance
        self.written: dict[str, list[int]] = {}
        self.client = Client(**ready._asdict(), patience_s=60.0)
        self.client.create_table("t", {"k": str}, stream_hours=24)
        with ProtocolClient(**ready._asdict(), timeout_s=30.0) as admin:
            made = admin.call_json("RowtideCreateToken", {"table": "t"})
        self.headers = {"Authorization": f"Bearer {made['token']}"}
        self.path = f"/stream/{ready.instance}/t"

    async def write(self, count: int) -> None:
        """Write rows whose numbers rise by one along each key."""
        for _ in range(count):
            name = self.chance.choice(NAMES)
            numbers = self.written.setdefault(name, [])
            await self._put(name, len(numbers))
            numbers.append(len(numbers))

    async def _put(self, name: str, number: int) -> None:
        """Write one number once, also if the server is killed meanwhile."""
        while True:
            try:
                held = await asyncio.to_thread(self.client.get, "t", {"k": name})
                if held is not None and held["n"] == number:
                    return
                await asyncio.to_thread(self.client.put, "t", {"k": name, "n": number})
            except NOT_NOW:
                await asyncio.sleep(0.1)
            else:
                return

    async def reshape(self, kind: str) -> None:
        """Split, merge or move some shard; one that cannot be stays as it is."""
        ready = self.processes.ready
        with ProtocolClient(**ready._asdict(), timeout_s=30.0) as admin:
            reply = await asyncio.to_thread(admin.call_json, "RowtideListShards", {"table": "t"})
            shards = [one["shard"] for one in reply["shards"] if one["state"] == "open"]
            shard = self.chance.choice(shards)
            at = self.chance.randrange(max(1, len(shards) - 1))
            calls: dict[str, tuple[str, dict[str, Any]]] = {
                "split": ("RowtideSplitShard", {"shard": shard, "at": self.chance.choice(NAMES)}),
                "merge": ("RowtideMergeShards", {"shards": shards[at : at + 2]}),
                "move": (
                    "RowtideMoveShard",
                    {"shard": shard, "slot": self.chance.randrange(SLOTS)},
                ),
            }
            operation, fields = calls[kind]
            await asyncio.to_thread(admin.call_json, operation, {"table": "t", **fields})


class RandomReader:
    """Follows the table, and loses its connection at random moments."""

    def __init__(self, world: FeedWorld, number: int) -> None:
        self.client = FeedClient(
            world.path,
            headers=world.headers,
            begin="oldest",
            format="sse" if number % 2 else "ndjson",
        )
        self.connections = 0
        self._world = world
        self._chance = random.Random(f"{SEED} {number}")

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            if self.client.token:
                self.client.parameters.pop("begin", None)
            try:
                async with asyncio.timeout(self._chance.uniform(0.05, 4.0)):
                    await self._read()
            except (TimeoutError, aiohttp.ClientError, OSError):
                pass
            except Refusal as error:
                # A position is never refused; a process may be away.
                if error.status != 503:
                    raise AssertionError(f"seed {SEED}: {error}") from error
            await asyncio.sleep(self._chance.uniform(0, 0.3))

    async def _read(self) -> None:
        async with self.client.connect(self._world.processes.url) as events:
            self.connections += 1
            async for event in events:
                assert event["event"] not in ("expired", "slow"), event

    def numbers(self) -> dict[str, list[int]]:
        """Return the numbers of each key as they came."""
        found: dict[str, list[int]] = {}
        for record in self.client.records:
            found.setdefault(record["key"]["k"], []).append(record["columns"]["n"])
        return found


async def follow_through(
    world: FeedWorld, *, readers: int, steps: int, connections: int
) -> list[RandomReader]:
    """Let readers follow while shards change and processes die, until each has everything.

    There are at least so many ``steps``, and each reader had more than so many ``connections``.
    """
    found = [RandomReader(world, number) for number in range(readers)]
    processes = world.processes
    kinds = ["split", "merge", "move", "split", "kill console", "merge", "kill server", "split"]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reader.run()) for reader in found]
        for step in count():
            if step >= steps and all(reader.connections > connections for reader in found):
                break
            kind = kinds[step % len(kinds)]
            writing = tasks.create_task(world.write(20))
            if kind == "kill console":
                await asyncio.to_thread(processes.restart_console)
            elif kind == "kill server":
                await asyncio.to_thread(processes.restart_server)
            else:
                await change_shards(world, kind)
            await writing
        await until_async(
            lambda: all(reader.numbers() == world.written for reader in found),
            lambda: f"seed {SEED}: {[len(reader.client.records) for reader in found]}",
            s_max=CAUGHT_UP_S_MAX,
        )
        for task in running:
            task.cancel()
    return found


async def change_shards(world: FeedWorld, kind: str) -> None:
    """Change the shards once, or leave them if they cannot be changed so."""
    from rowtide.cli.client import ServerError

    try:
        await world.reshape(kind)
    except ServerError as error:
        if error.code not in ("OTSParameterInvalid", "OTSObjectNotExist"):
            raise


async def test_readers_that_reconnect_get_each_record_once(world: FeedWorld) -> None:
    found = await follow_through(world, readers=5, steps=8, connections=2)
    assert min(reader.connections for reader in found) > 2


@pytest.mark.slow
async def test_twenty_readers_get_each_record_once(world: FeedWorld) -> None:
    found = await follow_through(world, readers=20, steps=80, connections=20)
    assert min(reader.connections for reader in found) > 20


async def test_a_position_moves_on_while_nothing_matches(world: FeedWorld) -> None:
    """How old it may be is tested in virtual time (``test_table_hub.py``)."""
    follower = FeedClient(world.path, headers=world.headers, filter="n < 0", format="ndjson")

    async def write_on() -> None:
        while True:  # A position moves only where something is written.
            await world.write(100)

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_on())
        async with follower.connect(world.processes.url) as events:
            async for event in events:
                assert event["event"] in ("ready", "position")
                if len(follower.events) == 4:
                    break
        writing.cancel()
    assert len({event["id"] for event in follower.events}) == 4


async def test_a_worker_that_is_gone_is_reported_and_then_the_feed_goes_on(
    world: FeedWorld,
) -> None:
    follower = FeedClient(world.path, headers=world.headers)
    processes = world.processes
    async with follower.connect(processes.url) as events:
        assert (await anext(events))["event"] == "ready"
        await asyncio.to_thread(processes.server.kill)
        async for event in events:
            if event["event"] == "behind":
                break
        stranger = FeedClient(world.path, headers=world.headers)
        with pytest.raises(Refusal) as refused:
            await stranger.take(processes.url, "ready")
        assert refused.value.status == 503
        assert "Traceback" not in refused.value.text
        await asyncio.to_thread(processes.server.start)
        await world.write(1)
        async for event in events:
            if event["event"] == "records":
                break
    assert "no answer from" in next(
        event["data"]["reason"] for event in follower.events if event["event"] == "behind"
    )
    assert len(follower.records) == 1
