"""An event loop whose time passes only while everybody sleeps, and processes that can be stopped.

Hours take milliseconds. There is no I/O and no chance in it, so the same program runs the same way
each time. What is called by a ``Process`` (by context, so all of its tasks and timers) waits while
that process is frozen, as under SIGSTOP, and comes in order when it goes on. A process that is
never thawed has been killed: nothing of it ever runs again.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context, ContextVar
from itertools import count
from typing import Any

__all__ = ["OUTSIDE", "Process", "VirtualTimeLoop", "in_process", "in_virtual_time"]

TURNS_MAX = 100_000
"""Turns of the loop in which no time passes; more of them are an endless loop."""

_PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)

OUTSIDE = Context()
"""The context of what belongs to no process: the broker, the network."""


def in_process() -> bool:
    """True if a process runs now, and not an outside observer."""
    return _PROCESS.get() is not None


class Process:
    """One process: what runs in its context stops and goes on with it."""

    def __init__(self) -> None:
        self.frozen = False
        self.context = Context()
        self.context.run(_PROCESS.set, self)
        self.held: list[asyncio.Handle] = []

    def freeze(self) -> None:
        """Stop it where it is."""
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on with what has come meanwhile."""
        self.frozen = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        held, self.held = self.held, []
        loop.resume(held)


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(_PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.frozen:
            process.held.append(self)
        else:
            super()._run()


class _TimerHandle(_Handle, asyncio.TimerHandle):
    __slots__ = ()


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address in memory."""

    def __init__(self, coro: Any, *, number: int, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _NoInput(selectors.BaseSelector):
    """Waits by moving the clock; nothing is ever ready."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._turns = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for an event that nobody will set"
        self._turns = self._turns + 1 if timeout <= 0 else 0
        assert self._turns < TURNS_MAX, "somebody is busy for ever"
        self.now_s += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """``time`` begins at 0 seconds."""

    _ready: Any
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self) -> None:
        self._no_input = _NoInput()
        super().__init__(self._no_input)
        numbers = count()
        self.set_task_factory(
            lambda loop, coro, **o: _Task(coro, number=next(numbers), **o, loop=loop)
        )
        # Exceptions that nobody asks for are those of processes that were killed.
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        return self._no_input.now_s

    def resume(self, held: list[asyncio.Handle]) -> None:
        """Let what was held come next."""
        self._ready.extend(held)

    def _write_to_self(self) -> None:
        """Wake nothing: there is no other thread."""

    # Handles of our own; what BaseEventLoop does besides is for debugging.

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


def in_virtual_time(program: Coroutine[Any, Any, None] | Generator[Any, Any, None]) -> None:
    """Run a program to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(program)  # type: ignore[arg-type]
