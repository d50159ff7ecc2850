"""The disk of a local log in memory, and the thread that writes to it, in virtual time.

``stream/log/local`` is the product's own code; only RocksDB and the thread are replaced. A write
that fails may be on the disk all the same. A write that is on its way when its process is killed is
on the disk or not: chance decides. What was written is never lost, because every write is synced.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.local.layout import TOPICS, Topic, entry_of, offset_of
from rowtide.stream.log.local.store import AtomicWrite, Store, StoreBusy, WriteFailed
from tests.simulation.broker import Broker, Place
from tests.simulation.network import Fate, Link, Network

__all__ = ["DiskStore", "DiskThread", "LogDisk"]

ENTRY = b"e"
SLOW_S = (0.05, 0.4, 1.5)
"""How long a slow write takes."""


class DiskBatch:
    """What is written at once, in order."""

    def __init__(self) -> None:
        self.steps: list[Callable[[LogDisk], None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""
        self.steps.append(lambda disk: disk.put(key, value))

    def delete(self, key: bytes) -> None:
        """Delete a key."""
        self.steps.append(lambda disk: disk.delete(key))

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the keys with begin <= key < end."""
        self.steps.append(lambda disk: disk.delete_range(begin, end))


class LogDisk:
    """What survives every process. ``broker`` gets a copy of each log, for the models."""

    def __init__(self, broker: Broker) -> None:
        self.user: DiskStore | None = None
        """The process that has it open."""
        self._broker = broker
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._appended: list[tuple[int, int, bytes]] = []

    def write(self, batch: DiskBatch) -> None:
        """Write a batch. Report its appends to the broker."""
        for step in batch.steps:
            step(self)
        appended, self._appended = self._appended, []
        places = self._log_places()
        by_place: dict[Place, list[tuple[bytes, bytes]]] = {}
        for number, offset, stored in appended:
            place = places.get(number)
            if place is None:
                continue  # A changelog's.
            pairs = by_place.setdefault(place, [])
            expected = self._broker.log(place).end + len(pairs)
            assert offset == expected, f"{place}: an entry at {offset}, not at {expected}"
            entry = entry_of(offset, stored)
            pairs.append((entry.key, entry.value))
        for place, pairs in by_place.items():
            self._broker.append(place, pairs)

    def _log_places(self) -> dict[int, Place]:
        found: dict[int, Place] = {}
        for key, value in self.scan(TOPICS, bytes((TOPICS[0] + 1,))):
            name, topic = key[1:].decode(), Topic.decode(value)
            if not name.endswith("-changelog"):
                found |= {topic.first + at: (name, at) for at in range(topic.partitions)}
        return found

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value."""
        if key not in self._values:
            insort(self._keys, key)
        self._values[key] = value
        if key[:1] == ENTRY:
            self._appended.append((int.from_bytes(key[1:5]), offset_of(key), value))

    def delete(self, key: bytes) -> None:
        """Delete a key, if it is there."""
        if self._values.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, begin: bytes, end: bytes) -> None:
        """Delete the keys with begin <= key < end."""
        low, high = bisect_left(self._keys, begin), bisect_left(self._keys, end)
        for key in self._keys[low:high]:
            del self._values[key]
        del self._keys[low:high]

    def get(self, key: bytes) -> bytes | None:
        """Return a value."""
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is there with start <= key < end, as of now."""
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, end)
        for key in self._keys[low:high]:
            yield key, self._values[key]


class DiskStore(Store):
    """One opening of a disk by one process, see ``Store``. ``link`` draws what goes wrong."""

    def __init__(self, disk: LogDisk, link: Link) -> None:
        self.thread = DiskThread(link.network)
        self._disk = disk
        self._link = link
        self._fails_to_open = False

    def open(self) -> None:
        """Open it. After a failed write the first attempt may fail."""
        if self._disk.user not in (None, self):
            raise StoreBusy("the disk is in use by another process")
        if self._fails_to_open:
            self._fails_to_open = False
            raise Unavailable("the disk cannot be read")
        self._disk.user = self

    def close(self) -> None:
        """Release the disk."""
        if self._disk.user is self:
            self._disk.user = None

    def kill(self, chance: random.Random) -> None:
        """Release the disk as its process is killed, with what its thread has begun."""
        self.thread.kill(chance)
        self.close()

    def new_batch(self) -> AtomicWrite:
        """Return an empty batch."""
        return DiskBatch()

    def write(self, batch: AtomicWrite) -> None:
        """Write a batch, unless it fails; it may be written where it fails."""
        assert isinstance(batch, DiskBatch)
        self._require_open()
        fate = self._link.draw_fate(self._link.fates)
        lost = fate in (Fate.REFUSED, Fate.LOST_REQUEST)
        if not lost:
            self._disk.write(batch)
            self._link.landing("append to .shard. .catalog .lease flush")
        if lost or fate is Fate.LOST_ANSWER:
            self._fails_to_open = self._link.network.chance.random() < 0.3
            raise WriteFailed(f"the disk fails: {fate.value}")

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value at each key."""
        self._require_open()
        return [self._disk.get(key) for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is there with start <= key < end."""
        self._require_open()
        return self._disk.scan(start, end)

    def _require_open(self) -> None:
        if self._disk.user is not self:
            raise Unavailable("the log is not open")


class DiskThread(Executor):
    """The thread of one process. A stopped process learns of finished work when it continues."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """Have something done after what was submitted before, and report it later."""
        done: Future[Any] = Future()
        self._waiting.append(partial(self._do, done, partial(call, *args, **named), copy_context()))
        chance, weather = self._network.chance, self._network.weather
        slow = chance.random() < weather.slow
        delay_s = chance.choice(SLOW_S) if slow else self._network.latency_s()
        self._network.later(delay_s, self._do_next)
        return done

    def _do_next(self) -> None:
        if self._waiting:
            self._waiting.popleft()()

    def _do(self, done: Future[Any], call: Callable[[], Any], context: Context) -> None:
        try:
            report = partial(done.set_result, call())
        except Exception as error:  # noqa: BLE001 - The caller gets it.
            report = partial(done.set_exception, error)
        delay_s = self._network.latency_s()
        # In the process: a stopped or killed process reports nothing.
        asyncio.get_running_loop().call_later(delay_s, report, context=context)

    def kill(self, chance: random.Random) -> None:
        """End the thread with its process. What is on its way is done now, or never."""
        while self._waiting and chance.random() < 0.5:
            self._do_next()
        self._waiting.clear()
