"""The wire by which other workers reach one, which a test can delay, stall and cut.

A worker tells the others a loopback address of its own by ``advertise``, at which it does not
listen: the wire does, on the same port. Nothing is known here of what passes.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from tests.histories.wire import HOST, Carried, Wired

__all__ = ["HopWire"]

CHUNK_BYTES = 64 << 10


class HopWire(Wired):
    """Listens at ``host`` for one worker."""

    def __init__(self, host: str, seed: str) -> None:
        super().__init__(seed)
        self.host = host

    async def lead_to(self, port: int) -> None:
        """Carry what comes for a port of ``host`` to that port of the worker, and nothing else."""
        self.close()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.carry(Passed(self, reader, writer), port)

        self._servers.append(await asyncio.start_server(accept, self.host, port))


class Passed(Carried):
    """One connection between two workers."""

    def __init__(
        self, hop: HopWire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(writer, 0)
        self._hop = hop
        self._reader = reader

    async def run(self, port: int) -> None:
        """Pass on what comes until either side ends."""
        back, self._onward = await asyncio.open_connection(HOST, port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pass_on(self._reader, self._onward), name="requests")
            tasks.create_task(self._pass_on(back, self._writer), name="answers")

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = self._hop.wire
        with suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if wire.stalled or wire.delay_s:
                    await self._hop.passable()
                if self._hop.happens(wire.cut):
                    wire.count("hop cut")
                    break
                if writer.is_closing():
                    break  # It was cut meanwhile.
                writer.write(chunk)
                await writer.drain()
                if self._hop.happens(wire.mute):
                    wire.count("hop cut behind")
                    break
        self.cut()
