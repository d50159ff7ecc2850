"""Keeps an embedded broker running: restarts it, with back-off, whenever it ends.

A coroutine for the server's task group. It runs until it is cancelled and fails only by a bug.
While the broker cannot be started (for example, because of a full disk), it reports that and
retries, because the server still answers requests, if only with errors.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.errors import EmbeddedKafkaError

__all__ = ["BrokerBack", "BrokerEnded", "BrokerEvent", "BrokerRefused", "supervise"]

POLL_S = 0.05
"""How late an end is noticed where the system does not report it: not on Linux."""

BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 5.0)
STABLE_S = 60.0
"""After this time without an end, the next restart has no delay again."""


@dataclass(frozen=True, slots=True)
class BrokerEnded:
    """The broker's process ended without being stopped."""

    pid: int | None
    returncode: int | None


@dataclass(frozen=True, slots=True)
class BrokerRefused:
    """A restart failed; the next attempt follows after ``delay_s``."""

    error: EmbeddedKafkaError
    delay_s: float


@dataclass(frozen=True, slots=True)
class BrokerBack:
    """The broker answers again. Its address may have changed."""

    bootstrap: str


BrokerEvent = BrokerEnded | BrokerRefused | BrokerBack


async def supervise(broker: EmbeddedBroker, report: Callable[[BrokerEvent], None]) -> NoReturn:
    """Restart ``broker`` each time it ends; call ``report`` in the event loop's thread.

    Cancel this before ``broker.stop()``, which also ends a restart in progress.
    """
    clock = asyncio.get_running_loop().time
    failures, ready_at = 0, clock()
    while True:
        await _end_of(broker)
        report(BrokerEnded(broker.pid, broker.returncode))
        failures = 0 if clock() - ready_at > STABLE_S else failures
        failures = await _bring_back(broker, report, failures)
        report(BrokerBack(broker.bootstrap))
        ready_at = clock()


async def _end_of(broker: EmbeddedBroker) -> None:
    """Return once the broker's process has ended."""
    ended = asyncio.Event()
    with _watch(broker.pid, ended) as is_watched:
        if is_watched:
            await ended.wait()
    while broker.is_alive():  # noqa: ASYNC110 - only waitpid reports the end.
        await asyncio.sleep(POLL_S)


@contextmanager
def _watch(pid: int | None, ended: asyncio.Event) -> Iterator[bool]:
    """Set ``ended`` once a process ends. Yield False where the system cannot report it.

    To ask twenty times a second instead took a ninth of the CPU time of an idle worker.
    """
    if sys.platform != "linux" or pid is None:
        yield False
        return
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # It has ended, or a container forbids the call.
        yield False
        return
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _bring_back(
    broker: EmbeddedBroker, report: Callable[[BrokerEvent], None], failures: int
) -> int:
    """Retry until the broker answers; return the number of consecutive restarts."""
    while True:
        await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
        failures += 1
        try:
            await asyncio.to_thread(broker.restart)
        except EmbeddedKafkaError as error:
            report(BrokerRefused(error, BACKOFF_S[min(failures, len(BACKOFF_S) - 1)]))
        else:
            return failures
