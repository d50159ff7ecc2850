"""A receiver in its own thread that keeps rows by the rule of
docs/guides/connectors/webhook.md.

It refuses some messages, and does not always acknowledge those that it took.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rowtide.core.values.key_ranges import Range, holds
from tests.connectors.webhook.receiver import Answer, receiving
from tests.support.waiting import SOON_S

__all__ = ["RowKeeper", "keeping"]


class RowKeeper:
    """Rows by their encoded keys, as of their stamps; None is a row that is gone."""

    def __init__(self, chance: random.Random) -> None:
        self.url = ""
        self._chance = chance
        self._rows: dict[bytes, tuple[int, Mapping[str, Any] | None]] = {}
        self._covered: dict[Range, int] = {}

    def living(self) -> dict[bytes, dict[str, str]]:
        """Return the rows there are, each value as JSON."""
        return {
            key: {name: json.dumps(value) for name, value in columns.items()}
            for key, (_, columns) in self._rows.items()
            if columns is not None
        }

    def decide(self, message: dict[str, Any]) -> Answer | None:
        """Answer a message: refuse it for now, take it, or take it and break off."""
        what = self._chance.random()
        if what < 0.05:
            return Answer(503)
        self._take(message)
        return None if what < 0.1 else Answer()

    def _take(self, message: dict[str, Any]) -> None:
        rows = {bytes.fromhex(row["order"]): row for row in message["rows"]}
        if (covers := message["covers"]) is not None:
            self._cover(covers, set(rows))
        # A message may have several rows of a key.
        for row in message["rows"]:
            key, stamp = bytes.fromhex(row["order"]), row["stamp"]
            if stamp >= self._stamp(key):
                self._rows[key] = stamp, row["columns"]

    def _cover(self, covers: Mapping[str, Any], there: set[bytes]) -> None:
        within = bytes.fromhex(covers["begin"]), bytes.fromhex(covers["end"])
        stamp = covers["stamp"]
        for key, (held, _) in self._rows.items():
            if held < stamp and key not in there and holds((within,), key):
                self._rows[key] = stamp, None
        self._covered[within] = max(stamp, self._covered.get(within, 0))

    def _stamp(self, key: bytes) -> int:
        """Return what a row of a key must not be below."""
        held, _ = self._rows.get(key, (0, None))
        return max([held, *(s for within, s in self._covered.items() if holds((within,), key))])


@contextmanager
def keeping(chance: random.Random) -> Iterator[RowKeeper]:
    """Give a keeper that listens on loopback."""
    keeper = RowKeeper(chance)
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with receiving() as receiver:
            receiver.decide = keeper.decide
            keeper.url = receiver.url
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="row keeper")
    thread.start()
    try:
        assert ready.wait(SOON_S), "it does not listen"
        yield keeper
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
