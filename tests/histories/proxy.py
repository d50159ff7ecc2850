"""A Kafka broker seen through a wire that a test can delay, cut, and hold back.

Each worker reaches the broker through a proxy of its own. Frames pass in order, as they came, save
for one thing: where an answer names the broker's address it names the proxy's instead, or the
worker would go there directly next time. A port is four bytes, so no length changes.

What can be done to it is a field of ``Wire``. Nothing here decodes more of the protocol than
a request's key and correlation id.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from tests.histories.wire import HOST, Carried, Wired

__all__ = ["PRODUCE", "Proxy"]

PRODUCE, METADATA, FIND_COORDINATOR = 0, 3, 10
NAMES_ADDRESSES = (METADATA, FIND_COORDINATOR)
FRAME_BYTES_MAX = 128 << 20
HEAD = struct.Struct(">hhi")


class Proxy(Wired):
    """Listens for one worker, on a port per broker. ``targets`` tells the brokers' ports now."""

    def __init__(self, targets: Callable[[], list[int]], seed: str) -> None:
        super().__init__(seed)
        self.ports: list[int] = []
        self._targets = targets

    async def serve(self, tasks: asyncio.TaskGroup) -> None:
        """Listen until ``close``; held-back requests are tasks of the group."""
        self._tasks = tasks
        for number in range(len(self._targets())):
            accept = partial(self._accept, number)
            server = await asyncio.start_server(accept, HOST, 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    @property
    def bootstrap(self) -> str:
        """Where the worker finds its brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def translate(self, frame: bytes) -> bytes:
        """Return an answer with our addresses in place of the brokers'."""
        for broker, ours in zip(self._targets(), self.ports, strict=True):
            frame = frame.replace(_address(broker), _address(ours))
        return frame

    def hold_back(self, broker: int, frame: bytes) -> None:
        """Let a request reach a broker later, from nobody."""
        delay_s = self._chance.random() * self.wire.late_s
        self._tasks.create_task(self._deliver(broker, frame, delay_s), name="held back")

    async def _deliver(self, broker: int, frame: bytes, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(10):
                reader, writer = await asyncio.open_connection(HOST, self._targets()[broker])
                writer.write(frame)
                await read_frame(reader)
                writer.close()
                self.wire.count("landed late")

    async def _accept(
        self, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self.carry(Passage(self, broker, reader, writer), self._targets()[broker])


class Passage(Carried):
    """One connection of the worker and the one to the broker of a number that goes with it."""

    def __init__(
        self, proxy: Proxy, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(writer, broker)
        self._proxy = proxy
        self._reader = reader
        self._keys: dict[int, int] = {}

    async def run(self, port: int) -> None:
        """Pass frames on until either side ends."""
        answers, self._onward = await asyncio.open_connection(HOST, port)
        async with asyncio.TaskGroup() as tasks:
            back = tasks.create_task(self._answers(answers), name="answers")
            await self._requests(self._onward)
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
                    proxy.hold_back(self.to, frame)
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
                    frame = self._proxy.translate(frame)
                if self._proxy.wire.stalled:
                    await self._proxy.passable()
                self._writer.write(frame)
                await self._writer.drain()
        self.cut()


def _address(port: int) -> bytes:
    return HOST.encode() + struct.pack(">i", port)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return one frame, its length included."""
    head = await reader.readexactly(4)
    length = int.from_bytes(head)
    assert length <= FRAME_BYTES_MAX, "not a frame of Kafka's protocol"
    return head + await reader.readexactly(length)
