"""A broker, workers that reach it through proxies, and how each of them is hurt.

Workers are processes of ``tests/system/worker_process.py``: the server as ``rowtide up`` runs it,
with flushes as often as wanted. All share the slots of one cluster. What blocks runs in a thread.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rowtide.cli.client import Access, ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.java import find_java
from tests.histories.client import NoAnswer, NotSent, WorkerClient
from tests.histories.hop_wire import HopWire
from tests.histories.load import Load
from tests.histories.proxy import Proxy
from tests.histories.requests import create_request
from tests.histories.shim import Shim
from tests.metric import metric
from tests.system.broker_hosts import BrokerHosts
from tests.system.server import Server
from tests.system.three_brokers import NODES, ThreeBrokers
from tests.system.worker_process import CREDENTIALS
from tests.workers.conftest import repeat

__all__ = ["Cluster", "Member"]

SLOTS = 6
FIRST_HOST = 11
"""Of the loopback network: at 127.0.0.11 the others believe the first worker to be."""
SERVES_S_MAX = 90.0
LOOK_S = 0.1
ADMIN_S_MAX = 15.0
"""A change of shards is answered within 10 s, done or not."""


class NotServed(Exception):
    """Long after everything was healed a slot or a worker is idle, or a worker ended by itself."""


class Member:
    """One worker: its process, its wire to the broker, and a client of it."""

    def __init__(self, server: Server, proxy: Proxy, hops: HopWire, shim: Shim | None) -> None:
        self.server = server
        self.hops = hops
        self.shim = shim
        self.proxy = proxy
        self.client = WorkerClient(
            Access(CREDENTIALS.instance, CREDENTIALS.access_key_id, CREDENTIALS.access_key_secret)
        )
        self.running = False

    async def start(self) -> None:
        """Start and return when it serves."""
        await asyncio.to_thread(self.server.start)
        self.running = True
        self.client.close()
        self.client.port = int(self.server.ready().endpoint.rpartition(":")[2])
        address = (await self.ask("RowtideStatus", {}))["address"]
        await self.hops.lead_to(int(address.rpartition(":")[2]))

    async def kill(self) -> None:
        """End it as a power cut would."""
        self.running = False
        await asyncio.to_thread(self.server.kill)

    async def stop(self) -> int:
        """Let it drain and end; return its exit code."""
        self.running = False
        return await asyncio.to_thread(self.server.stop)

    def signal(self, number: signal.Signals) -> None:
        """Send its process a signal."""
        os.kill(self.server.pid, number)

    def set_clock(self, skew_s: float) -> None:
        """Let its time of day jump."""
        assert self.shim is not None, "started without a shim"
        self.shim.set_clock(skew_s)
        self.client.skew_s = skew_s

    async def ask(self, operation: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to one of rowtide's own operations; nothing without one."""
        body = json.dumps(fields).encode()
        try:
            code, answer = await self.client.call(operation, body, timeout_s=ADMIN_S_MAX)
        except (NoAnswer, NotSent):
            return {}
        found: dict[str, Any] = {} if code else json.loads(answer)
        return found

    async def count_copy_answers(self) -> int:
        """Return how many requests its copies have answered."""
        endpoint = self.server.ready().endpoint
        name = 'rowtide_bounded_reads_total{answered="copy"}'
        return int(await asyncio.to_thread(metric, endpoint, name))

    async def slots(self) -> list[int]:
        """Return the slots that it has open and may read."""
        slots = (await self.ask("RowtideStatus", {})).get("slots", [])
        return [slot["slot"] for slot in slots if slot["open"] and slot["lease"]]

    async def shards(self) -> list[str]:
        """Return the ids of the shards that it serves."""
        slots = (await self.ask("RowtideStatus", {})).get("slots", [])
        return [shard["shard"] for slot in slots for shard in slot["shards"] if slot["open"]]


class Cluster:
    """Three workers or more, and one broker or three, in ``folder``.

    ``shimmed`` gives each of them a clock and a disk that can be disturbed, with one broker;
    ``hosts`` are those of three brokers, for wires between them that can be.
    """

    def __init__(
        self,
        folder: Path,
        cache_dir: Path,
        seed: int,
        options: Sequence[str] = (),
        *,
        shimmed: bool = False,
        brokers: int = 1,
        hosts: BrokerHosts | None = None,
    ) -> None:
        self.folder = folder
        self.broker_shim = Shim(folder / "shim") if shimmed else None
        config = EmbeddedConfig(folder / "kafka", cache_dir)
        if self.broker_shim is not None:
            java = self.broker_shim.java(find_java(None).path, folder)
            config = replace(config, java=java, aot=False)
        three = brokers == NODES
        self._three = ThreeBrokers(folder / "kafka", cache_dir, hosts) if three else None
        self.hosts = hosts
        self.brokers = self._three.nodes if self._three else [EmbeddedBroker(config)]
        self.shimmed = shimmed
        self.members: list[Member] = []
        self.load: Load | None = None
        self._cache_dir = cache_dir
        self._seed = seed
        self._options = tuple(options)
        self._tasks: asyncio.TaskGroup | None = None
        self._guest: Member | None = None

    def ports(self) -> list[int]:
        """Return where the brokers listen now."""
        return [int(broker.bootstrap.rpartition(":")[2]) for broker in self.brokers]

    async def start(self, tasks: asyncio.TaskGroup, workers: int) -> None:
        """Start everything; return when each slot is served and the table is there."""
        self._tasks = tasks
        await asyncio.to_thread((self._three or self.brokers[0]).start)
        for _ in range(workers):
            await self.add(tasks)
        async with asyncio.TaskGroup() as starts:
            for member in self.members:
                starts.create_task(member.start(), name="start")
        await self.wait_until_served(divided=True)
        await asyncio.to_thread(self._create_table)

    def _create_table(self) -> None:
        with self.members[0].server.client() as client:
            make_table(client)

    async def add(self, tasks: asyncio.TaskGroup) -> Member:
        """Add a worker, which is not started."""
        number = len(self.members)
        proxy = Proxy(self.ports, f"{self._seed} proxy {number}")
        await proxy.serve(tasks)
        options = ["--kafka", proxy.bootstrap, "--topic-prefix", "histories"]
        hops = HopWire(f"127.0.0.{FIRST_HOST + number}", f"{self._seed} hops {number}")
        options += ["--advertise", hops.host]
        options += ["--durability", "replicated"] if self._three else []
        options += ["--slots", str(SLOTS), "--table-operations-per-s", "0", *self._options]
        shim = Shim(self.folder / f"shim{number}") if self.shimmed else None
        server = Server(
            self.folder / f"worker{number}",
            self._cache_dir,
            options=tuple(options),
            environment=shim.environment if shim else {},
        )
        # Beside the folder: where its disk is full, what a worker says must not be lost.
        logs = self.folder.with_name(self.folder.name + ".logs")
        logs.mkdir(exist_ok=True)
        server.log = logs / server.log.name
        member = Member(server, proxy, hops, shim)
        self.members.append(member)
        return member

    async def guest(self) -> Member:
        """Return the worker that comes and goes; it is not started."""
        assert self._tasks is not None, "not started"
        if self._guest is None:
            self._guest = await self.add(self._tasks)
        return self._guest

    async def in_sync(self) -> None:
        """Return when any one of several brokers may be away again."""
        if self._three:
            await asyncio.to_thread(self._three.wait_until_in_sync)

    async def wait_until_served(self, *, divided: bool = False) -> None:
        """Return when every slot is open on exactly one worker, and, if asked, each has some.

        Raises ``NotServed``.
        """
        until_s = time.monotonic() + SERVES_S_MAX
        while True:
            running = [member for member in self.members if member.running]
            found = {member.server.data_dir.name: await member.slots() for member in running}
            slots = sorted(slot for slots in found.values() for slot in slots)
            if slots == list(range(SLOTS)) and (all(found.values()) or not divided):
                return
            if time.monotonic() > until_s or any(member.server.ended for member in running):
                words = "\n".join(
                    f"{member.server.log}, ended: {member.server.ended}" for member in running
                )
                raise NotServed(f"slots are {found}, a worker ended or time is up\n{words}")
            await asyncio.sleep(LOOK_S)  # There is nothing to wait on from outside.

    def end(self) -> None:
        """Leave nothing running."""
        for member in self.members:
            with suppress(ProcessLookupError):
                member.server.kill()
            member.proxy.close()
            member.hops.close()
        (self._three or self.brokers[0]).stop()


def make_table(client: ProtocolClient) -> None:
    """Create the table, and again where a slot was on its way."""
    repeat(partial(client.call, "CreateTable", create_request(), pb.CreateTableResponse))
