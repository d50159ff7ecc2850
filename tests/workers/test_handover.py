"""Workers come and go: what one served another serves, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Row
from rowtide.deploy import up as up_module
from tests.api.calls import ask, key, put, puts, read_row, shown
from tests.workers.conftest import SERVED_S_MAX, Workers, ask_any, repeat
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

TABLES = [f"t{number}" for number in range(6)]

LONG = ("--lease-ms", "120000")
"""Longer than a write is repeated: a worker that leaves cleanly makes no other wait for a
lease.
"""


SESSION_MS = 4000 * int(SERVED_S_MAX)
"""Longer than a write is repeated: a wait for the group to miss a worker would fail."""

OF_LONG_SESSIONS = f"""\
from functools import partial
from rowtide.cli.main import main
from rowtide.stream.worker import kafka_backing
kafka_backing.MembershipConfig = partial(
    kafka_backing.MembershipConfig, session_timeout_ms={SESSION_MS}
)
main()
"""
"""A ``rowtide`` whose group takes a worker for dead only then."""


@pytest.fixture
def long_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of the test be of long sessions."""
    monkeypatch.setattr(up_module, "RUN", OF_LONG_SESSIONS)


def write_all(clients: Sequence[ProtocolClient], number: int) -> None:
    """Write a row of each table and read it; nothing but what SDKs repeat may come between."""
    for at, name in enumerate(TABLES):
        first = (number + at) % len(clients)
        asked = [*clients[first:], *clients[:first]]
        request = put(name, key("a", number), puts(n=number))
        ask_any(asked, partial(ask, request=request))
        assert shown(ask_any(asked[::-1], partial(row, name, number))) == {"n": number}


def write_all_though_killed(client: ProtocolClient, number: int) -> None:
    """Write a row of each table, again where it may have been written."""
    for name in TABLES:
        repeat(partial(ask, client, put(name, key("a", number), puts(n=number))))


def row(name: str, number: int, client: ProtocolClient) -> Row | None:
    """Return a row that was written."""
    return read_row(client, name, key("a", number))


def check_all(client: ProtocolClient, numbers: range) -> None:
    for name in TABLES:
        for number in numbers:
            assert shown(read_row(client, name, key("a", number))) == {"n": number}


def test_a_worker_that_joins_takes_its_share(workers: Workers) -> None:
    first = workers.start(*LONG)
    for name in TABLES:
        repeat(partial(ask, first, create(name)))
    write_all([first], 0)
    second = workers.start(*LONG)
    for number in range(1, 20):
        write_all([first, second], number)
    workers.wait_until_divided()
    check_all(first, range(20))
    check_all(second, range(20))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_a_worker_served_others_serve_at_once_and_the_group_divides_later(
    workers: Workers, how: str
) -> None:
    clients = [workers.start(*(LONG if how == "stopped" else ())) for _ in range(3)]
    workers.wait_until_divided()
    for name in TABLES:
        repeat(partial(ask, clients[0], create(name)))  # Slots may still move.
    write_all(clients, 0)
    leaving, left = workers.running[2], clients[:2]
    if how == "killed":
        leaving.kill()
    else:
        leaving.stop()
    workers.clients = left
    number = 0
    while number < 20 or not workers.is_divided():
        number += 1
        if how == "killed":
            write_all_though_killed(left[number % 2], number)
        else:
            write_all(left, number)
    for client in left:
        check_all(client, range(number + 1))


def test_a_dead_workers_slots_are_taken_over_as_its_leases_tell_not_the_groups_session(
    workers: Workers, long_session: None
) -> None:
    survivor = workers.start()
    workers.start()
    workers.wait_until_divided()
    for name in TABLES:
        repeat(partial(ask, survivor, create(name)))
    workers.running[1].kill()
    write_all_though_killed(survivor, 0)
    check_all(survivor, range(1))
    workers.running[0].kill()  # To leave it would wait for a division, which waits for the dead.


def test_a_rolling_restart_is_seen_by_nobody_who_retries(workers: Workers) -> None:
    for _ in range(3):
        workers.start(*LONG)
    workers.wait_until_divided()
    for name in TABLES:
        repeat(partial(ask, workers.clients[0], create(name)))
    write_all(workers.clients, 0)
    number = 0

    def restart(which: int) -> None:
        workers.running[which].stop()
        workers.again(which)

    with ThreadPoolExecutor(1) as operator:
        for which in range(3):
            restarted = operator.submit(restart, which)
            while not restarted.done():
                number += 1
                write_all(workers.clients, number)
            restarted.result()
            workers.wait_until_divided()
            number += 1
            write_all(workers.clients, number)
    assert number > 3
    for client in workers.clients:
        check_all(client, range(number + 1))
