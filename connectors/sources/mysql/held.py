"""Events of a transaction that has not ended, in memory, or in a file beyond ``HELD_BYTES``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import Any

__all__ = ["HELD_BYTES", "HeldEvents"]

HELD_BYTES = 8 * 1024 * 1024
_HEAD = Struct("<BI")


class HeldEvents:
    """Events in order. ``size`` counts their bytes, and is a mark for ``cut``."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._events: list[tuple[int, bytes]] = []
        self._file: Any = None
        self.size = 0

    def add(self, kind: int, body: bytes) -> None:
        """Hold an event."""
        self.size += _HEAD.size + len(body)
        if self._file is None:
            self._events.append((kind, body))
            if self.size <= HELD_BYTES:
                return
            if self._folder is not None:
                os.makedirs(self._folder, exist_ok=True)  # A source stores nothing else there.
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            events, self._events = self._events, []
        else:
            events = [(kind, body)]
        for each, text in events:
            self._file.write(_HEAD.pack(each, len(text)) + text)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return self.since(0)

    def since(self, mark: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events that were added since ``size`` was ``mark``."""
        if self._file is None:
            at = 0
            for kind, body in self._events:
                if at >= mark:
                    yield kind, body
                at += _HEAD.size + len(body)
            return
        self._file.seek(mark)
        while head := self._file.read(_HEAD.size):
            kind, length = _HEAD.unpack(head)
            yield kind, self._file.read(length)

    def cut(self, mark: int) -> None:
        """Drop the events that were added since ``size`` was ``mark``."""
        while self._events and self.size > mark:
            self.size -= _HEAD.size + len(self._events.pop()[1])
        if self._file is not None:
            self._file.seek(mark)
            self._file.truncate()
            self.size = mark

    def clear(self) -> None:
        """Drop all events."""
        self._events, self.size = [], 0
        if self._file is not None:
            self._file.close()
            self._file = None
