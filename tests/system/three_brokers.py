"""Three brokers of one cluster on this machine, each of which can be killed and paused.

Every topic has three replicas, of which two must have a batch before it is acknowledged: what
``durability = "replicated"`` asks for, and compose file and chart set up. Each node is broker and
controller, so that any one of them may be away. Nothing is flushed: what two brokers have is held
to be durable.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Self

from aiokafka.admin import AIOKafkaAdminClient

from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.directory import HOST, fresh_id
from rowtide.deploy.kafka.jars import read_lock, resolve_jars
from rowtide.deploy.ports import free_ports
from tests.system.broker_hosts import BrokerHosts

__all__ = ["NODES", "ThreeBrokers", "standing_still"]

NODES = 3
LOOK_S = 0.1
IN_SYNC_S_MAX = 180.0


class ThreeBrokers:
    """Nodes 0, 1 and 2 in folders of ``folder``; all run between ``start`` and ``stop``.

    With ``hosts`` each is on a host of its own, from where it reaches the others; clients reach all
    of them at this machine's loopback address, either way.
    """

    def __init__(self, folder: Path, cache_dir: Path, hosts: BrokerHosts | None = None) -> None:
        ports = list(islice(free_ports(HOST), 3 * NODES))
        self.ports, controllers, between = ports[:NODES], ports[NODES:-NODES], ports[-NODES:]
        self._hosts = hosts
        at = [HOST if hosts is None else hosts.address(n) for n in range(NODES)]
        voters = ",".join(f"{n + 1}@{at[n]}:{port}" for n, port in enumerate(controllers))
        cluster_id = fresh_id()
        self.nodes: list[EmbeddedBroker] = []
        for n, (port, controller) in enumerate(zip(self.ports, controllers, strict=True)):
            path = folder / f"broker{n}"
            path.mkdir(parents=True)
            state = {"cluster_id": cluster_id, "port": port, "controller_port": controller}
            (path / "state.json").write_text(json.dumps(state))
            settings = {"node.id": str(n + 1), "controller.quorum.voters": voters, **REPLICATED}
            settings |= _apart(port, controller, f"{at[n]}:{between[n]}") if hosts else {}
            config = EmbeddedConfig(path, cache_dir, fsync=False, settings=settings)
            self.nodes.append(EmbeddedBroker(config))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """The addresses of all, for clients."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self) -> None:
        """Start all at once: none answers before two of them are there."""
        if self._hosts is not None:
            # A host reaches only the others: what is fetched from afar is fetched before.
            resolve_jars(self.nodes[0].config.cache_dir, read_lock())
            for n, port in enumerate(self.ports):
                self._hosts.lead_to(n, port)
        with ThreadPoolExecutor(NODES) as pool:
            starts = [partial(self._on, n, node.start) for n, node in enumerate(self.nodes)]
            for started in [pool.submit(start) for start in starts]:
                started.result()

    def stop(self) -> None:
        """Leave nothing running."""
        with ThreadPoolExecutor(NODES) as pool:
            for ended in [pool.submit(node.stop) for node in self.nodes]:
                ended.result()

    def kill(self, node: int) -> None:
        """End one as a power cut would."""
        self.nodes[node].kill()

    def restart(self, node: int) -> None:
        """Start one that was killed; return when it answers, not yet in sync."""
        self._on(node, self.nodes[node].restart)

    def _on(self, node: int, do: Callable[[], None]) -> None:
        if self._hosts is None:
            do()
        else:
            self._hosts.run(node, do)

    def wait_until_in_sync(self) -> None:
        """Return when every partition has all its replicas again: then any one may be away."""
        asyncio.run(self._all_in_sync())

    async def _all_in_sync(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            async with asyncio.timeout(IN_SYNC_S_MAX):
                while True:
                    if await _in_sync(admin):
                        return
                    await asyncio.sleep(LOOK_S)  # There is nothing to wait on from outside.
        finally:
            await admin.close()


REPLICATED = {
    "default.replication.factor": str(NODES),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(NODES),
    "transaction.state.log.replication.factor": str(NODES),
    "transaction.state.log.min.isr": "2",
    # A replica that does not follow for so long no longer counts; the default is 30 s.
    "replica.lag.time.max.ms": "5000",
    # One node is what elects itself at once; three must hear of each other on a busy machine.
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "500",
}


def _apart(port: int, controller: int, between: str) -> dict[str, str]:
    """Return the listeners of a node that others reach at ``between``, and clients at loopback."""
    return {
        "listeners": f"PLAINTEXT://0.0.0.0:{port},BETWEEN://{between}"
        f",CONTROLLER://0.0.0.0:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},BETWEEN://{between}",
        "inter.broker.listener.name": "BETWEEN",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT"
        ",CONTROLLER:PLAINTEXT",
    }


async def _in_sync(admin: AIOKafkaAdminClient) -> bool:
    topics = await admin.describe_topics()
    return all(
        len(partition["isr"]) == len(partition["replicas"])
        for topic in topics
        for partition in topic["partitions"]
    )


@contextmanager
def standing_still(broker: EmbeddedBroker) -> Iterator[None]:
    """Let a broker stand still: nothing it is sent is answered or lost."""
    pid = broker.pid
    assert pid is not None, "not started"
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
