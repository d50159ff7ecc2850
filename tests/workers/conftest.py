"""Several workers of one Kafka: each a process, any of them asked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rowtide.cli.client import NoAnswer, NotConnected, ProtocolClient, ServerError
from rowtide.deploy.ports import free_ports, is_free
from rowtide.deploy.up import Ready, Up
from tests.support.copies import launch
from tests.support.waiting import until

__all__ = ["Retrying", "Workers", "ask_any", "free_port", "repeat", "workers"]

HOST = "127.0.0.1"
SLOTS = 6
SERVED_S_MAX = 60.0
DIVIDED_S_MAX = 180.0
"""A group needs many heartbeats of a second on a busy machine."""
UNAVAILABLE = {"OTSPartitionUnavailable", "OTSServerBusy", "OTSServerUnavailable"}
RETRIED = {*UNAVAILABLE, "OTSTimeout"}
UNKNOWN = {"OTSServerUnavailable", "OTSTimeout"}
MADE = "OTSObjectAlreadyExist"


READS = ("Get", "BatchGet", "Describe", "List")
"""How the names of operations begin that change nothing."""


class Retrying(ProtocolClient):
    """Repeats, as SDKs do, what was not done because a slot is on its way.

    Reads also where their worker died with the answer: they change nothing.
    """

    def _exchange(self, operation: str, body: bytes) -> bytes:
        deadline = time.monotonic() + SERVED_S_MAX
        again = RETRIED if operation.startswith(READS) else UNAVAILABLE
        while True:
            try:
                return super()._exchange(operation, body)
            except ServerError as error:
                if error.code not in again or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)


class Workers:
    """Processes of ``rowtide worker``, by number; ended with the test."""

    def __init__(self, folder: Path, broker: str, closing: ExitStack) -> None:
        self.folder = folder
        self._broker = broker
        self._closing = closing
        self._ready: Ready | None = None
        self._endpoints: list[str] = []
        self.running: list[Up] = []
        self.clients: list[ProtocolClient] = []
        self._killed: set[int] = set()

    def start(self, *options: str) -> ProtocolClient:
        """Start one more worker; return a client of it."""
        number = len(self.running)
        output = self._closing.enter_context((self.folder / f"output{number}").open("wb"))
        all_options = ["--port", "0", "--kafka", self._broker, "--slots", str(SLOTS)]
        all_options += [
            "--topic-prefix",
            self.folder.name,
            "--table-operations-per-s",
            "0",
            *options,
        ]
        up = self._closing.enter_context(
            Up(
                self.folder / f"worker{number}",
                options=all_options,
                output=output,
                command="worker",
                launch=launch,
            )
        )
        self.running.append(up)
        ready = up.start()
        self._endpoints.append(ready.endpoint)
        self._ready = self._ready or ready
        client = self._closing.enter_context(Retrying(**self._access(ready.endpoint)))
        self.clients.append(client)
        return client

    def ready(self, number: int) -> dict[str, Any]:
        """Return how to reach a worker."""
        return self._access(self._endpoints[number])

    def again(self, number: int) -> ProtocolClient:
        """Start a worker that ended, on its directory; return a new client of it."""
        self._endpoints[number] = self.running[number].start().endpoint
        access = self._access(self._endpoints[number])
        client = self._closing.enter_context(Retrying(**access))
        self.clients[number] = client
        return client

    def kill(self, number: int) -> None:
        """Kill a worker. ``revive`` starts it again."""
        self.running[number].kill()
        self._killed.add(number)

    def revive(self) -> None:
        """Start all workers that ``kill`` ended."""
        while self._killed:
            self.again(self._killed.pop())

    def another(self) -> ProtocolClient:
        """Return a fresh client of a worker by chance, which need not run."""
        return self.one(ProtocolClient)

    def one(self, kind: type[ProtocolClient]) -> ProtocolClient:
        """Return a fresh client of that kind."""
        return kind(**self._access(random.choice(self._endpoints)))

    def _access(self, endpoint: str) -> dict[str, Any]:
        """Return how to reach a worker: all use the first one's key and instance."""
        assert self._ready is not None, "a worker was started"
        return self._ready._replace(endpoint=endpoint)._asdict()

    def is_divided(self) -> bool:
        """True if every slot is open on exactly one worker, and each worker has its share."""
        by_client = [client.call_json("RowtideStatus", {})["slots"] for client in self.clients]
        opened = [[slot["slot"] for slot in slots if slot["open"]] for slots in by_client]
        share = SLOTS // len(self.clients)
        return all(len(numbers) == share for numbers in opened) and sorted(
            number for numbers in opened for number in numbers
        ) == list(range(SLOTS))

    def wait_until_divided(self) -> None:
        """Return once the slots are divided."""
        until(self.is_divided, "slots are divided", s_max=DIVIDED_S_MAX)


T = TypeVar("T")


def ask_any(clients: Sequence[ProtocolClient], attempt: Callable[[ProtocolClient], T]) -> T:
    """Return the answers of clients that repeat what SDKs do, and no more.

    They are answers of workers behind a balancer: if one cannot be reached, the next one
    is called. A write whose outcome is unknown is not repeated: it fails the test, as
    does every error.
    """
    began = time.monotonic()
    for client in cycle(clients):
        try:
            return attempt(client)
        except NotConnected:
            if time.monotonic() - began > SERVED_S_MAX:
                raise
        time.sleep(0.02)  # As SDKs do between two attempts.
    raise AssertionError("there is a worker")


def repeat(attempt: Callable[[], object]) -> float:
    """Do it until it succeeds, whatever becomes of workers; return how long that took, in seconds.

    Also what SDKs do not repeat, for it may have been done: workers are killed, and attempts are
    harmless. What is there already was made by one of ours that had no answer, if there was one.
    """
    began = time.monotonic()
    unknown = False
    while (refused := failure(attempt)) is not None:
        if unknown and refused == MADE:
            break
        assert refused in RETRIED, refused
        unknown = unknown or refused in UNKNOWN
        assert time.monotonic() - began < SERVED_S_MAX, refused
        time.sleep(0.02)  # As SDKs do between two attempts.
    return time.monotonic() - began


def failure(attempt: Callable[[], object]) -> str | None:
    """Return the code of what went wrong, or None."""
    try:
        attempt()
    except ServerError as error:
        return error.code
    except NoAnswer:
        return "OTSServerUnavailable"  # As one whose outcome is unknown.
    return None


@pytest.fixture
def free_port() -> int:
    """Return a port that is free now, as is the next one."""
    return next(port for port in free_ports(HOST) if is_free(HOST, port + 1))


@pytest.fixture
def workers(tmp_path: Path, broker: str) -> Iterator[Workers]:
    """No worker yet; the test starts them."""
    with ExitStack() as closing:
        yield Workers(tmp_path, broker, closing)
