"""What can be wrong with a wire between two processes, and who passes things on over it.

A ``Wired`` listens where one side believes the other to be, and carries each connection on; what
is wrong is a field of its ``Wire``, and chances are drawn from a seed.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["HOST", "Carried", "Wire", "Wired"]

HOST = "127.0.0.1"


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


class Carried(ABC):
    """One connection that came, and the one that goes on; ``to`` is the number of its target."""

    def __init__(self, writer: asyncio.StreamWriter, to: int) -> None:
        self.to = to
        self._writer = writer
        self._onward: asyncio.StreamWriter | None = None

    @abstractmethod
    async def run(self, port: int) -> None:
        """Carry on to a port until either side ends."""

    def cut(self) -> None:
        """End both connections without a farewell."""
        for writer in (self._writer, self._onward):
            if writer is not None and writer.transport is not None:
                writer.transport.abort()


class Wired:
    """Connections over one wire."""

    def __init__(self, seed: str) -> None:
        self.wire = Wire()
        self._chance = random.Random(seed)
        self._changed = asyncio.Event()
        self._carried: set[Carried] = set()
        self._servers: list[asyncio.Server] = []

    async def carry(self, one: Carried, port: int) -> None:
        """Carry a connection on until it ends."""
        self._carried.add(one)
        try:
            if not self.refuses(one.to):
                with suppress(OSError, asyncio.IncompleteReadError):
                    await one.run(port)
        except asyncio.CancelledError:
            pass  # The loop ends; nobody waits for this task.
        finally:
            self._carried.discard(one)
            one.cut()

    def close(self) -> None:
        """Stop listening and end every connection."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        self.cut_all()

    def cut_all(self) -> None:
        """End every connection now."""
        for one in list(self._carried):
            one.cut()

    def note_change(self) -> None:
        """Let what waits look at the wire again."""
        self._changed.set()
        self._changed = asyncio.Event()
        for one in list(self._carried):
            if self.refuses(one.to):
                one.cut()

    def refuses(self, to: int) -> bool:
        """True if a target is reached no more."""
        return self.wire.down or self.wire.without == to

    async def passable(self) -> None:
        """Return when the wire passes something on."""
        while self.wire.stalled:
            await self._changed.wait()
        if self.wire.delay_s:
            await asyncio.sleep(self._chance.random() * 2 * self.wire.delay_s)

    def happens(self, chance: float) -> bool:
        """True if something of a chance happens now."""
        return chance > 0 and self._chance.random() < chance
