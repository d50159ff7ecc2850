"""Three brokers, of which any one may be away: what ``durability = "replicated"`` promises.

The seed is printed; ROWTIDE_SEED repeats a run's writes and the order of its victims.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from tests.system.broker_hosts import BrokerHosts, NoHosts
from tests.system.conftest import MakeServer
from tests.system.history import check_all
from tests.system.load import Load, create_table
from tests.system.server import Server, wait_until
from tests.system.three_brokers import NODES, ThreeBrokers, standing_still

pytestmark = [pytest.mark.kafka, pytest.mark.system]

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
BETWEEN = 200
"""Rows acknowledged at least between two faults; some random time follows."""
WRITTEN_S_MAX = 180.0
"""The brokers elect leaders before it, some of them twice."""


@pytest.fixture
def hosts() -> Iterator[BrokerHosts | None]:
    """A host for each broker; None where that can't be: then all are on this machine's."""
    with ExitStack() as made:
        found = None
        with suppress(NoHosts):
            found = made.enter_context(BrokerHosts(NODES))
        yield found


@pytest.fixture
def brokers(hosts: BrokerHosts | None, tmp_path: Path, cache_dir: Path) -> Iterator[ThreeBrokers]:
    with ThreeBrokers(tmp_path / "brokers", cache_dir, hosts) as three:
        yield three


@pytest.fixture
def server(brokers: ThreeBrokers, make_server: MakeServer) -> Server:
    """A server as users start it on a cluster of theirs, with its table."""
    where = ("--kafka", brokers.bootstrap, "--durability", "replicated")
    # Leases as they come: what a broker that is away does to them is part of it.
    lease = ("--lease-ms", str(LeaseSettings().lease_ms))
    server = make_server(command=(ROWTIDE, "up", "--port", "0", *where, *lease))
    server.start()
    with server.client() as client:
        create_table(client)
    return server


def write_on(load: Load, rows: int) -> float:
    """Wait until so many more rows were acknowledged; return how many seconds that took."""
    began, before = time.monotonic(), load.applied + rows
    wait_until(
        lambda: load.applied >= before,
        what=f"{rows} rows acknowledged",
        timeout_s=WRITTEN_S_MAX,
    )
    return time.monotonic() - began


def prove(server: Server, load: Load) -> None:
    """Check everything, and again once the worker was killed."""
    with server.client() as client:
        check_all(client, load.written)
    server.kill()
    server.start()
    with server.client() as client:
        check_all(client, load.written)


@pytest.mark.parametrize("kills", [1, pytest.param(NODES, marks=pytest.mark.slow)])
def test_any_one_of_three_brokers_may_be_killed_stand_still_or_be_cut_off(
    brokers: ThreeBrokers, hosts: BrokerHosts | None, server: Server, seed: int, kills: int
) -> None:
    """One fault after another, each of another broker than the one before."""
    chance = random.Random(seed)
    victims = chance.sample(range(NODES), NODES)
    pauses = []
    with Load(server, seed=seed) as load:
        for victim in victims[:kills]:
            write_on(load, BETWEEN)
            time.sleep(chance.random())
            brokers.kill(victim)
            pauses.append(round(write_on(load, BETWEEN), 2))  # While it is away.
            brokers.restart(victim)
            brokers.wait_until_in_sync()
        with standing_still(brokers.nodes[victims[1]]):
            pauses.append(round(write_on(load, BETWEEN), 2))
        brokers.wait_until_in_sync()
        if hosts is not None:  # Clients reach it, and it believes to lead what others lead.
            with hosts.cut_off(victims[2]):
                pauses.append(round(write_on(load, BETWEEN), 2))
    print(f"{BETWEEN} rows without one broker took, in seconds: {pauses}")  # noqa: T201
    prove(server, load)


@pytest.mark.slow
def test_what_a_broker_sends_may_be_lost_or_what_it_is_sent_or_both(
    brokers: ThreeBrokers, hosts: BrokerHosts | None, server: Server, seed: int
) -> None:
    if hosts is None:
        pytest.skip("wires between brokers can't be broken here: it takes root, and iproute2")
    chance = random.Random(seed)
    pauses = {}
    with Load(server, seed=seed) as load:
        for mute, deaf in chance.sample([(True, True), (True, False), (False, True)], 3):
            write_on(load, BETWEEN)
            with hosts.cut_off(chance.randrange(NODES), mute=mute, deaf=deaf):
                pauses[f"{mute=}, {deaf=}"] = round(write_on(load, BETWEEN), 2)
            brokers.wait_until_in_sync()
        write_on(load, BETWEEN)
    print(f"{BETWEEN} rows took, in seconds: {pauses}")  # noqa: T201
    prove(server, load)


@pytest.mark.slow
def test_with_one_broker_left_nothing_is_acknowledged_and_nothing_is_lost(
    brokers: ThreeBrokers, server: Server, seed: int
) -> None:
    chance = random.Random(seed)
    with Load(server, seed=seed) as load:
        write_on(load, BETWEEN)
        with ExitStack() as back:
            for victim in chance.sample(range(NODES), 2):
                brokers.kill(victim)
                back.callback(brokers.restart, victim)
            time.sleep(1.0)  # What the brokers had taken before may still be answered.
            before = load.applied
            time.sleep(3.0)
            assert load.applied == before
        write_on(load, BETWEEN)
    with server.client() as client:
        check_all(client, load.written)
