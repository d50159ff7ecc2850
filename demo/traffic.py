"""More flights after the demo's load, one after another, so that a page has something to show."""

from __future__ import annotations

import itertools
import threading
from types import TracebackType
from typing import Self

from demo.load import Loader
from demo.source import TABLES, Source

__all__ = ["Traffic"]

FEBRUARY = 2
PAUSE_S = 0.1
FLIGHTS = TABLES[-1]


class Traffic:
    """Puts the flights of February, ten a second and again from the first, until it is left."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._put_flights, name="traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join(timeout=10)

    def _put_flights(self) -> None:
        for row in itertools.cycle(Source(FEBRUARY).rows(FLIGHTS)):
            if self._ends.wait(PAUSE_S):
                return
            self._loader.load(FLIGHTS, [row])
