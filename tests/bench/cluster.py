"""A broker and several workers as processes, for what is measured of them together.

Every worker keeps its port over its restarts, so a client may knock until it is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from demo.servers.server import free_port
from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.up import Ready, Up

__all__ = ["Cluster"]

SETTLED_S_MAX = 120.0
LOOK_S = 0.1

Status = list[dict[str, Any]]


class Cluster:
    """``count`` workers that share ``slots``; all is ended and reaped when left.

    With ``apart`` they share the broker alone: each is a cluster of its own.
    """

    def __init__(
        self,
        folder: Path,
        cache_dir: Path,
        *,
        count: int,
        slots: int,
        options: Sequence[str] = (),
        apart: bool = False,
    ) -> None:
        self._folder = folder
        self._cache_dir = cache_dir
        self._count = count
        self._options = ("--slots", str(slots), "--table-operations-per-s", "0", *options)
        self._slots = slots
        self._apart = apart
        self._ended = ExitStack()
        self.workers: list[Up] = []
        self.access: list[Ready] = []
        """How each worker is reached; all of a cluster take the first one's key."""

    def __enter__(self) -> Self:
        with ExitStack() as failing:
            kafka = EmbeddedConfig(self._folder / "kafka", self._cache_dir)
            broker = failing.enter_context(EmbeddedBroker(kafka))
            log = failing.enter_context((self._folder / "workers.log").open("ab"))
            for number in range(self._count):
                options = (*self._options, "--kafka", broker.bootstrap, "--port", str(free_port()))
                if self._apart:
                    options += ("--topic-prefix", f"rowtide{number}")
                worker = Up(self._folder / f"worker{number}", options=options, output=log)
                self.workers.append(failing.enter_context(worker))
                ready = worker.start()
                first = ready if self._apart or not self.access else self.access[0]
                self.access.append(first._replace(endpoint=ready.endpoint))
            self._ended = failing.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.close()

    def status(self, number: int) -> Status:
        """Return every worker's status as one of them tells it; nothing where it is silent."""
        try:
            with ProtocolClient(**self.access[number]._asdict()) as client:
                found: Status = client.call_json("RowtideClusterStatus", {})["workers"]
        except (NoAnswer, ServerError):
            return []
        return found

    def drain(self, number: int) -> None:
        """Have a worker give its slots away, and wait until it has none."""
        self._ask(number, "RowtideDrain")
        self.settle(self._count - 1)

    def undrain(self, number: int) -> None:
        """Let a worker take slots again."""
        self._ask(number, "RowtideUndrain")

    def _ask(self, number: int, operation: str) -> None:
        with ProtocolClient(**self.access[number]._asdict()) as client:
            client.call_json(operation, {})

    def settle(self, count: int) -> dict[int, tuple[str, int]]:
        """Wait until ``count`` workers share all slots alike; return the owner of each.

        Silent or drained workers do not count. Workers ``apart`` need no wait.
        """
        return self._until(lambda workers: _is_divided(workers, count))

    def wait_until_taken_over(self, count: int) -> None:
        """Wait until ``count`` workers serve all slots, however divided."""
        self._until(lambda workers: len([w for w in workers if w.get("slots")]) <= count)

    def _until(self, done: Callable[[Status], bool]) -> dict[int, tuple[str, int]]:
        until = time.monotonic() + SETTLED_S_MAX
        while True:
            workers = next(filter(None, map(self.status, range(self._count))), [])
            claims = _claims(workers)
            if len(claims) == self._slots and done(workers):
                return claims
            if time.monotonic() > until:
                raise TimeoutError(f"the slots are not divided: {workers}")
            time.sleep(LOOK_S)  # Of other processes there is nothing to wait on.


def _is_divided(workers: Status, count: int) -> bool:
    """True if ``count`` workers are ready and each has its share of the slots."""
    shares = [len(worker["slots"]) for worker in workers if worker.get("ready")]
    return len(shares) == count and max(shares) - min(shares) <= 1


def _claims(workers: Status) -> dict[int, tuple[str, int]]:
    """Return the worker and the claim of every slot that is open and leased."""
    return {
        slot["slot"]: (worker["address"], slot["claim"])
        for worker in workers
        for slot in worker.get("slots", ())
        if slot["open"] and slot["lease"]
    }
