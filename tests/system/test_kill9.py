"""Workers and brokers killed at random moments under load: nothing acknowledged is lost or doubled.

The seed is printed; ROWTIDE_SEED repeats a run's writes and its choice of victims.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.searches import examples
from tests.system.conftest import MakeServer
from tests.system.history import check_all, stream_of
from tests.system.load import Load, create_table
from tests.system.server import Server, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

BETWEEN_KILLS = 400
"""Acknowledged rows at least between two kills; some random time follows."""


IN_FLIGHT = 20
"""Rows that all writers together may have under way, batches included."""


class Restart(NamedTuple):
    """How long clients were without service after a kill."""

    victim: str
    seconds: float


def kill_worker(server: Server) -> None:
    """The embedded broker goes with it: its watchdog ends it."""
    server.kill()
    server.start()


def kill_broker(server: Server) -> None:
    server.kill_broker()


VICTIMS: dict[str, Callable[[Server], None]] = {"worker": kill_worker, "broker": kill_broker}


def kill_often(
    server: Server, load: Load, chance: random.Random, kills: int, victims: list[str]
) -> list[Restart]:
    """Kill at random moments; return how long it took until a write was acknowledged again."""
    restarts = []
    for number in range(kills):
        before = load.applied + BETWEEN_KILLS
        wait_until(
            lambda before=before: load.applied >= before,  # type: ignore[misc]
            what=f"{BETWEEN_KILLS} rows acknowledged",
        )
        time.sleep(chance.random())
        victim = victims[number] if number < len(victims) else chance.choice(victims)
        began = time.monotonic()
        VICTIMS[victim](server)
        # What the victim had acknowledged may still be on its way to the writers.
        before = load.applied + IN_FLIGHT
        wait_until(lambda before=before: load.applied > before, what="writes again")  # type: ignore[misc]
        restarts.append(Restart(victim, round(time.monotonic() - began, 2)))
    return restarts


def prove(server: Server, seed: int, kills: int, victims: list[str]) -> None:
    server.start()
    with server.client() as client:
        create_table(client)
    with Load(server, seed=seed) as load:
        restarts = kill_often(server, load, random.Random(seed), kills, victims)
    with server.client() as client:
        counts = check_all(client, load.written)
    print(f"{counts} {restarts}")  # noqa: T201  # Shown with -s, and when the test fails.
    assert counts["applied"] > kills * BETWEEN_KILLS
    server.kill()
    server.start()
    with server.client() as client:
        check_all(client, load.written)
        assert len(stream_of(client, limit=1)) == 1


FLUSHES = ("--flush-s", "1", "--trim-s", "1000")


def test_what_was_acknowledged_survives_kills_of_worker_and_broker(
    make_server: MakeServer, seed: int
) -> None:
    prove(make_server(*FLUSHES), seed, examples(3, 4), list(VICTIMS))


def test_what_was_acknowledged_survives_kills_of_a_worker_whose_broker_lives(
    make_server: MakeServer, seed: int, broker: str, tmp_path: Path
) -> None:
    server = make_server(*FLUSHES, "--kafka", broker, data_dir=tmp_path / f"alone{seed}")
    prove(server, seed, examples(2, 3), ["worker"])


@pytest.mark.slow
def test_what_was_acknowledged_survives_many_kills(make_server: MakeServer, seed: int) -> None:
    prove(make_server(*FLUSHES), seed, 40, list(VICTIMS))
