"""What happened in a run, in order, and a hash of all of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, deque

__all__ = ["Trace"]

KEPT = 400


class Trace:
    """Lines with their times. The last ones are kept for reading, all of them are hashed."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT)
        self.counts: Counter[str] = Counter()
        self._hash = hashlib.sha256()

    def add(self, kind: str, text: str) -> None:
        """Note that something happened now."""
        line = f"{asyncio.get_running_loop().time():9.4f} {kind}: {text}"
        self.counts[kind] += 1
        self._hash.update(line.encode())
        self.lines.append(line)

    def hexdigest(self) -> str:
        """Return the hash of everything so far."""
        return self._hash.hexdigest()
