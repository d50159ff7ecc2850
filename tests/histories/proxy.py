"""A Kafka broker seen through a wire that a test can delay, cut, and hold back.

Each worker reaches the broker through a proxy of its own. Frames pass in order, as they came, save
for one thing: where an answer names the broker's address it names the proxy's instead, or the
worker would go there directly next time. A port is four bytes, so no length changes.

What can be done to the wire is a field of ``Wire``. Nothing here decodes more of the protocol than
a request's key and correlation id.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

__all__ = ["PRODUCE", "Proxy", "Wire"]

HOST = b"127.0.0.1"
PRODUCE, METADATA, FIND_COORDINATOR = 0, 3, 10
NAMES_ADDRESSES = (METADATA, FIND_COORDINATOR)
FRAME_BYTES_MAX = 128 << 20
HEAD = struct.Struct(">hhi")


@dataclass(slots=True)
class Wire:
    """What is wrong with it. Chances are of each request; times are seconds.

    ``down`` refuses connections and ends those that are, ``without`` those to one of several
    brokers; ``stalled`` lets them be and passes nothing on. ``late`` is the chance that a produce
    request is held back for up to ``late_s`` and its connection ended at once, so that it lands
    when its sender has long given it up. ``mute`` is the chance that a request is passed on and its
    connection ended before the answer.
    """

    down: bool = False
    without: int | None = None
    stalled: bool = False
    delay_s: float = 0.0
    cut: float = 0.0
    mute: float = 0.0
    late: float = 0.0
    late_s: float = 2.0
    counts: dict[str, int] = field(default_factory=dict)

    def heal(self) -> None:
        """Be a good wire again."""
        self.down = self.stalled = False
        self.without = None
        self.delay_s = self.cut = self.mute = self.late = 0.0

    def count(self, what: str) -> None:
        """Count something that was done to a request."""
        self.counts[what] = self.counts.get(what, 0) + 1


class Proxy:
    """Listens for one worker, on a port per broker. ``targets`` tells the brokers' ports now."""

    def __init__(self, targets: Callable[[], list[int]], seed: str) -> None:
        self.wire = Wire()
        self.ports: list[int] = []
        self._targets = targets
        self._chance = random.Random(seed)
        self._changed = asyncio.Event()
        self._passages: set[Passage] = set()
        self._servers: list[asyncio.Server] = []

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
        """Listen until ``close``; held-back requests are tasks of the group."""
        self._tasks = tasks
        for number in range(len(self._targets())):
            accept = partial(self._accept, number)
            server = await asyncio.start_server(accept, HOST.decode(), 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    @property
    def bootstrap(self) -> str:
        """Where the worker finds its brokers."""
        return ",".join(f"{HOST.decode()}:{port}" for port in self.ports)

    def close(self) -> None:
        """Stop listening and end every connection."""
        for server in self._servers:
            server.close()
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection now."""
        for passage in list(self._passages):
            passage.cut()

    def changed(self) -> None:
        """Let waiting requests look at the wire again."""
        self._changed.set()
        self._changed = asyncio.Event()
        for passage in list(self._passages):
            if self.refuses(passage.broker):
                passage.cut()

    def refuses(self, broker: int) -> bool:
        """Say whether the worker reaches a broker no more."""
        return self.wire.down or self.wire.without == broker

    def translated(self, frame: bytes) -> bytes:
        """Return an answer with our addresses in place of the brokers'."""
        for broker, ours in zip(self._targets(), self.ports, strict=True):
            frame = frame.replace(_address(broker), _address(ours))
        return frame

    async def passable(self) -> None:
        """Return when the wire passes something on."""
        while self.wire.stalled:
            await self._changed.wait()
        if self.wire.delay_s:
            await asyncio.sleep(self._chance.random() * 2 * self.wire.delay_s)

    def happens(self, chance: float) -> bool:
        """Say whether something of a chance happens now."""
        return chance > 0 and self._chance.random() < chance

    def hold_back(self, broker: int, frame: bytes) -> None:
        """Let a request reach a broker later, from nobody."""
        delay_s = self._chance.random() * self.wire.late_s
        self._tasks.create_task(self._deliver(broker, frame, delay_s), name="held back")

    async def _deliver(self, broker: int, frame: bytes, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(
                    HOST.decode(), self._targets()[broker]
                )
                writer.write(frame)
                await read_frame(reader)
                writer.close()
                self.wire.count("landed late")

    async def _accept(
        self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        passage = Passage(self, broker, reader, writer)
        self._passages.add(passage)
        try:
            if not self.refuses(broker):
                await passage.run(self._targets()[broker])
        except asyncio.CancelledError:
            pass  # The loop ends; nobody waits for this task.
        finally:
            self._passages.discard(passage)
            passage.cut()


class Passage:
    """One connection of the worker and the one to the broker of a number that goes with it."""

    def __init__(
        self, proxy: Proxy, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.broker = broker
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._to_broker: asyncio.StreamWriter | None = None
        self._keys: dict[int, int] = {}

    def cut(self) -> None:
        """End both connections without a farewell."""
        for writer in (self._writer, self._to_broker):
            if writer is not None and writer.transport is not None:
                writer.transport.abort()

    async def run(self, port: int) -> None:
        """Pass frames on until either side ends."""
        with suppress(OSError, asyncio.IncompleteReadError):
            answers, self._to_broker = await asyncio.open_connection(HOST.decode(), port)
            async with asyncio.TaskGroup() as tasks:
                back = tasks.create_task(self._answers(answers), name="answers")
                await self._requests(self._to_broker)
                back.cancel()

    async def _requests(self, broker: asyncio.StreamWriter) -> None:
        wire, proxy = self._proxy.wire, self._proxy
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await read_frame(self._reader)
                key, _, number = HEAD.unpack_from(frame, 4)
                if wire.stalled or wire.delay_s:
                    await proxy.passable()
                if key == PRODUCE and proxy.happens(wire.late):
                    wire.count("held back")
                    proxy.hold_back(self.broker, frame)
                    break
                if proxy.happens(wire.cut):
                    wire.count("cut")
                    break
                if proxy.happens(wire.mute):
                    wire.count("answer lost")
                    broker.write(frame)
                    await broker.drain()
                    break
                if key in NAMES_ADDRESSES:
                    self._keys[number] = key
                broker.write(frame)
                await broker.drain()
        self.cut()

    async def _answers(self, answers: asyncio.StreamReader) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await read_frame(answers)
                if self._keys.pop(int.from_bytes(frame[4:8]), None) is not None:
                    frame = self._proxy.translated(frame)
                if self._proxy.wire.stalled:
                    await self._proxy.passable()
                self._writer.write(frame)
                await self._writer.drain()
        self.cut()


def _address(port: int) -> bytes:
    return HOST + struct.pack(">i", port)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return one frame, its length included."""
    head = await reader.readexactly(4)
    length = int.from_bytes(head)
    assert length <= FRAME_BYTES_MAX, "not a frame of Kafka's protocol"
    return head + await reader.readexactly(length)
