"""An event loop whose time passes only while everybody sleeps: hours take milliseconds.

There is no I/O and no chance in it, so the same program runs the same way each time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Mapping
from typing import Any

__all__ = ["VirtualTimeLoop"]


TURNS_MAX = 100_000
"""Turns of the loop in which no time passes; more of them are an endless loop."""


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

    def __init__(self) -> None:
        self._no_input = _NoInput()
        super().__init__(self._no_input)

    def time(self) -> float:
        return self._no_input.now_s
