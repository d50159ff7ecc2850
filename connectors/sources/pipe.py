"""A bounded pipe from a reading thread to the event loop. It also passes the thread's failure."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Pipe", "PipeClosed"]

T = TypeVar("T")

JOIN_S = 15.0
"""How long ``join`` waits for the thread, which is ending."""
WAITING_S = 5.0
"""How often a thread that waits for room keeps its connection alive."""


class PipeClosed(Exception):
    """The pipe has no reader any more."""


class Pipe(Generic[T]):
    """Lists of items from one thread to the loop that made the pipe, up to
    ``weight_max``.

    A list that is heavier passes alone.
    """

    def __init__(self, weigh: Callable[[list[T]], int], *, weight_max: int) -> None:
        self._weigh = weigh
        self._weight_max = weight_max
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._room = threading.Condition()
        self._lists: deque[list[T]] = deque()
        self._weight = 0
        self._closed = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def start(self, read: Callable[[], None], name: str) -> None:
        """Run ``read`` in a thread. It calls ``put``."""

        def run() -> None:
            try:
                read()
            except PipeClosed:
                pass
            except Exception as error:  # noqa: BLE001 - ``take`` raises it
                self._failure = error
            finally:
                self._wake()

        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    async def take(self, timeout_s: float) -> list[T]:
        """Return all items, or none after a time-out. Raises what ended the thread."""
        if not self._lists:
            self._ready.clear()
            if not self._lists and self._failure is None:
                try:
                    async with asyncio.timeout(timeout_s):
                        await self._ready.wait()
                except TimeoutError:
                    return []
        with self._room:
            taken = [thing for things in self._lists for thing in things]
            self._lists.clear()
            self._weight = 0
            self._room.notify()
        if not taken and self._failure is not None:
            raise self._failure
        return taken

    @property
    def empty(self) -> bool:
        """True if everything that was put has been taken."""
        return not self._lists

    def wake(self) -> None:
        """Make ``take`` return, even without items."""
        self._ready.set()

    def close(self) -> None:
        """Accept no more items. The thread ends at its next ``put``."""
        with self._room:
            self._closed = True
            self._room.notify()

    def join(self) -> None:
        """Wait for the thread. Blocks."""
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def put(self, things: list[T], while_waiting: Callable[[], None] | None = None) -> None:
        """Add items once there is room. Called by the thread. Raises PipeClosed."""
        weight = self._weigh(things)
        while not self._try_to_add(things, weight):
            if while_waiting is not None:
                while_waiting()
        self._wake()

    def _try_to_add(self, things: list[T], weight: int) -> bool:
        def room() -> bool:
            return not self._weight or self._weight + weight <= self._weight_max or self._closed

        with self._room:
            there_is_room = self._room.wait_for(room, WAITING_S)
            if self._closed:
                raise PipeClosed
            if there_is_room:
                self._lists.append(things)
                self._weight += weight
            return there_is_room

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ready.set)
