"""Keeps cores busy, so that what is measured beside it must wait for its turn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["busy"]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run ``count`` processes that never wait. A machine's load rises by as many."""
    with ExitStack() as end:
        for _ in range(count):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            end.callback(process.wait)
            end.callback(process.kill)
        yield
