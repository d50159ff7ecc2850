"""One table of a source's server as ``verify`` compares it: page after page, and by keys."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager

from rowtide.connectors.rows import Key
from rowtide.core import key as key_order
from rowtide.core import variant
from rowtide.core.variant import Scalar

__all__ = ["Found", "ServerSide"]

Columns = Mapping[str, Scalar]

Found = Sequence[tuple[Key, Mapping[str, Scalar | None]]]
"""Rows of a server: None stands for NULL, which is no column in rowtide."""


class ServerSide(ABC):
    """See ``SourceSide``. ``key`` names the columns of the table's key, in rowtide's order."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = key

    @abstractmethod
    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """Return rows behind a cursor, and the next one, None at the end; blocks."""

    @abstractmethod
    def found(self, keys: Sequence[Key]) -> Found:
        """Return the rows of some keys, more if the server takes some for equal; blocks."""

    @abstractmethod
    def translated(self) -> AbstractContextManager[None]:
        """Raise what a failure of the server means for a source."""

    @abstractmethod
    def let_go(self) -> None:
        """Close connections."""

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Give all rows, see ``SourceSide.rows``."""
        cursor: list[str] | None = None
        while True:
            with self.translated():
                found, cursor = await asyncio.to_thread(self.page, cursor)
            for row in found:
                yield _compared(*row)
            if cursor is None:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows of keys, see ``SourceSide.look_up``."""
        wanted = [
            tuple(zip(self._key, map(variant.decode, key_order.decode(key)), strict=True))
            for key in keys
        ]
        with self.translated():
            rows = await asyncio.to_thread(self.found, wanted)
        found = dict(_compared(*row) for row in rows)
        # A server to which 'a' and 'A' are one, or 1.0 and 1.00, finds the one for the other.
        return {key: found[key] for key in keys if key in found}

    async def close(self) -> None:
        """Let go of connections."""
        self.let_go()


def _compared(key: Key, columns: Mapping[str, Scalar | None]) -> tuple[bytes, Columns]:
    encoded = key_order.encode([variant.encode(value) for _, value in key])
    return encoded, {name: value for name, value in columns.items() if value is not None}
