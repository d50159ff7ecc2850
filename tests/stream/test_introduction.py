"""What a worker makes when it starts first, its instance and its key, and never again; how others
come to know it, and to forget it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.stream.api.admin import AdminOperations
from rowtide.stream.api.directory import Directory
from rowtide.stream.cluster.catalog_owner import SNAPSHOT_EVERY, CatalogOwner
from rowtide.stream.cluster.peers import Answers, Peers
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.measures.clock import MachineClock
from rowtide.stream.routing import introduction
from rowtide.stream.routing.introduction import Credentials, Introduction
from rowtide.stream.worker.cluster_operations import ClusterOperations
from tests.contract.memory_log import MemoryLog

FIRST = Credentials("key-of-first", "secret", "demo")
SECOND = Credentials("key-of-second", "secret", "demo")
OPERATOR = Identity(SECOND.access_key_id, SECOND.instance, b"")

Meanwhile = Callable[[], Awaitable[None]]


class Cluster:
    """The catalog, and what starts and asks there."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.owner = self.make_owner(b"ownerid1")

    def make_owner(self, owner: bytes) -> CatalogOwner:
        """Return the catalog on a worker, not read yet."""
        return CatalogOwner(self.log.twin(), self.log.twin(), owner=owner, clock_us=lambda: 1)

    def introduction(self, wanted: Credentials, address: str = "") -> Introduction:
        """Return that of the worker that has these credentials."""

        async def forward(_slot: int, _name: str, _identity: Identity, _body: bytes) -> bytes:
            raise AssertionError("the catalog is owned here")

        name = wanted.access_key_id
        address = address or f"{name}:1"
        return Introduction(wanted, self.owner, forward, name=name, address=address)

    async def start(self, wanted: Credentials, address: str = "") -> None:
        """Introduce the worker that has these credentials."""
        await self.introduction(wanted, address).make()

    async def forget(self, address: str, meanwhile: Meanwhile) -> None:
        """Forget a worker, as an operator does; it answers nothing while ``meanwhile`` happens."""

        class Silent:
            address = "asked:1"

            async def ask(self, _operation: str, _body: bytes, *, among: list[str]) -> Answers:
                await meanwhile()
                return {at: Unavailable("no connection") for at in among}

        operations = ClusterOperations(
            Directory(self.owner.catalog, {}, Limits(), lambda: 1),
            cast(Placement, self.owner),
            cast(Peers, Silent()),
            *cast(Any, (None, None, None)),
        )
        await operations.forget_worker(OPERATOR, json.dumps({"worker": address}).encode())

    @property
    def operations(self) -> AdminOperations:
        """What operators ask for."""
        directory = Directory(self.owner.catalog, {}, Limits(), lambda: 1)
        placement = cast(Placement, self.owner)  # No slot is there to be brought in line.
        return AdminOperations(directory, placement, dict, MachineClock())

    async def revoke(self, access_key_id: str) -> None:
        """Revoke a key, as an operator does."""
        asked = json.dumps({"access_key_id": access_key_id}).encode()
        await self.operations.revoke_key(OPERATOR, asked)

    async def delete(self, instance: str) -> None:
        """Delete an instance, as an operator does."""
        asked = json.dumps({"name": instance}).encode()
        await self.operations.delete_instance(OPERATOR, asked)

    @property
    def keys(self) -> set[str]:
        """The keys there are."""
        return set(self.owner.catalog.credentials)


@pytest.fixture
async def cluster() -> Cluster:
    """A cluster of two workers."""
    found = Cluster()
    await found.owner.open(1)
    for wanted in (FIRST, SECOND):
        await found.start(wanted)
    return found


async def test_a_worker_that_starts_again_changes_nothing(cluster: Cluster) -> None:
    assert cluster.keys == {FIRST.access_key_id, SECOND.access_key_id}
    before = cluster.owner.catalog.applied
    await cluster.start(FIRST)
    assert cluster.owner.catalog.applied == before


async def test_a_worker_that_starts_again_brings_no_revoked_key_back(cluster: Cluster) -> None:
    await cluster.revoke(FIRST.access_key_id)
    assert cluster.keys == {SECOND.access_key_id}
    await cluster.start(FIRST)
    assert cluster.keys == {SECOND.access_key_id}


async def test_a_worker_that_starts_again_brings_no_deleted_instance_back(cluster: Cluster) -> None:
    await cluster.start(Credentials("key-of-third", "secret", "other"))
    await cluster.delete(FIRST.instance)
    await cluster.start(FIRST)
    assert set(cluster.owner.catalog.instances) == {"other"}
    await cluster.revoke(FIRST.access_key_id)
    await cluster.start(FIRST)
    assert set(cluster.owner.catalog.instances) == {"other"}


async def test_the_last_instance_is_not_deleted(cluster: Cluster) -> None:
    with pytest.raises(Rejected, match="the last one"):
        await cluster.delete(FIRST.instance)
    assert set(cluster.owner.catalog.instances) == {FIRST.instance}


async def test_a_snapshot_of_the_catalog_remembers_revoked_keys(cluster: Cluster) -> None:
    await cluster.revoke(FIRST.access_key_id)
    for _ in range(SNAPSHOT_EVERY):
        await cluster.owner.change(lambda catalog, _stamp: [catalog.counters(shards=1)])
    start, _ = await cluster.log.bounds()
    assert start > 0, "what came before the snapshot is trimmed"
    cluster.owner = cluster.make_owner(b"ownerid2")
    await cluster.owner.open(2)
    await cluster.start(FIRST)
    assert cluster.keys == {SECOND.access_key_id}


async def test_a_start_waits_where_the_catalog_went_to_another_worker_just_now(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introduction, "RETRY_S", 0.0)
    third = Credentials("key-of-third", "secret", "demo")
    rival = cluster.make_owner(b"ownerid2")
    await rival.open(2)  # Of that the former owner has not read.

    async def forward(_slot: int, _name: str, identity: Identity, body: bytes) -> bytes:
        asked = Introduction(third, rival, forward, name="rival", address="rival:1")
        return await asked.welcome(identity, body)

    await Introduction(third, cluster.owner, forward, name="third", address="third:1").make()
    assert rival.catalog.workers["third"] == "third:1"


async def nothing() -> None:
    """What happens where nothing does."""


async def test_a_worker_that_was_killed_is_forgotten(cluster: Cluster) -> None:
    await cluster.forget("key-of-first:1", nothing)
    assert cluster.owner.catalog.workers == {"key-of-second": "key-of-second:1"}


async def test_a_worker_that_is_started_again_while_it_is_to_be_forgotten_is_known(
    cluster: Cluster,
) -> None:
    await cluster.forget("key-of-first:1", lambda: cluster.start(FIRST, "elsewhere:2"))
    assert cluster.owner.catalog.workers["key-of-first"] == "elsewhere:2"


async def test_a_worker_that_lives_and_was_forgotten_is_known_again_until_it_says_goodbye(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(introduction, "LOOK_S", 0.0)
    first = cluster.introduction(FIRST)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(first.keep())
        await turns()
        await first.make()
        await cluster.forget("key-of-first:1", nothing)
        await turns()
        assert cluster.owner.catalog.workers["key-of-first"] == "key-of-first:1"
        await first.part()
        await turns()
        assert "key-of-first" not in cluster.owner.catalog.workers
        keeping.cancel()


async def turns() -> None:
    """Let others run."""
    for _ in range(50):
        await asyncio.sleep(0)
