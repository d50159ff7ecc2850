"""Workers come and go: what one served another serves, and nothing is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rowtide.cli.client import Client
from tests.api.calls import ask, key, put, puts, shown, stored
from tests.workers.conftest import Workers, repeated
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

TABLES = [f"t{number}" for number in range(6)]


LONG = ("--lease-ms", "120000")
"""Longer than a write is repeated: nobody who leaves in peace leaves others to wait for a lease."""


def write_all(client: Client, number: int) -> float:
    """Write a row of each table; return the longest wait, in seconds."""
    requests = [put(name, key("a", number), puts(n=number)) for name in TABLES]
    return max(repeated(partial(ask, client, request)) for request in requests)


def check_all(client: Client, numbers: range) -> None:
    for name in TABLES:
        for number in numbers:
            assert shown(stored(client, name, key("a", number))) == {"n": number}


def test_a_worker_that_joins_takes_its_share(workers: Workers) -> None:
    first = workers.start(*LONG)
    for name in TABLES:
        repeated(partial(ask, first, create(name)))
    write_all(first, 0)
    second = workers.start(*LONG)
    for number in range(1, 50):
        write_all(first if number % 2 else second, number)
    workers.settled()
    check_all(first, range(50))
    check_all(second, range(50))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_a_worker_served_others_serve_at_once_and_the_group_divides_later(
    workers: Workers, how: str
) -> None:
    clients = [workers.start(*(LONG if how == "stopped" else ())) for _ in range(3)]
    workers.settled()
    for name in TABLES:
        repeated(partial(ask, clients[0], create(name)))  # Slots may still move.
    write_all(clients[1], 0)
    leaving, left = workers.running[2], clients[:2]
    if how == "killed":
        leaving.kill()
    else:
        leaving.stop()
    workers.clients = left
    number = 0
    while number < 20 or not workers.divided():
        number += 1
        write_all(left[number % 2], number)
    for client in left:
        check_all(client, range(number + 1))


def test_a_rolling_restart_is_seen_by_nobody_who_retries(workers: Workers) -> None:
    for _ in range(3):
        workers.start(*LONG)
    workers.settled()
    for name in TABLES:
        repeated(partial(ask, workers.clients[0], create(name)))
    write_all(workers.clients[0], 0)
    number = 0

    def restart(which: int) -> None:
        workers.running[which].stop()
        workers.again(which)

    with ThreadPoolExecutor(1) as operator:
        for which in range(3):
            others = [client for n, client in enumerate(workers.clients) if n != which]
            restarted = operator.submit(restart, which)
            while not restarted.done():
                number += 1
                write_all(others[number % 2], number)
            restarted.result()
            workers.settled()
    assert number > 3
    for client in workers.clients:
        check_all(client, range(number + 1))
