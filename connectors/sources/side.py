"""One table of a source's server as ``verify`` compares it: page after page, and by keys."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from rowtide.connectors.rows import Key
from rowtide.connectors.sources.tables import Followed, table_of
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.variant import Scalar

__all__ = ["Found", "ServerSide"]

Columns = Mapping[str, Scalar]

Found = Sequence[tuple[Key, Mapping[str, Scalar | None]]]
"""Rows of a server: None stands for NULL, which is no column in rowtide."""


class SideSession(Protocol):
    """A connection to a server."""

    def close(self) -> None: ...


Server = TypeVar("Server", bound=SideSession)
Table = TypeVar("Table", bound=Followed)


class ServerSide(ABC, Generic[Server, Table]):
    """See ``SourceSide``. Its ``server`` is closed with it.

    ``followed`` returns the server's tables by name; making a side blocks in it. Raises
    SettingsRefused. ``translated`` raises what a failure of the server means for a source.
    """

    def __init__(
        self,
        server: Server,
        followed: Callable[[Server], Mapping[str, Table]],
        target: str,
        *,
        translated: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._server = server
        self._translated = translated
        try:
            self._table = table_of(followed(server).values(), target)
        except BaseException:
            server.close()
            raise

    @abstractmethod
    def key_names(self) -> Sequence[str]:
        """Return the columns of the table's key, in rowtide's order."""

    @abstractmethod
    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """Return rows behind a cursor, and the next one, None at the end; blocks."""

    @abstractmethod
    def found(self, keys: Sequence[Key]) -> Found:
        """Return the rows of some keys, more if the server takes some for equal; blocks."""

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Give all rows, see ``SourceSide.rows``."""
        cursor: list[str] | None = None
        while True:
            with self._translated():
                found, cursor = await asyncio.to_thread(self.page, cursor)
            for row in found:
                yield _compared(*row)
            if cursor is None:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows of keys, see ``SourceSide.look_up``."""
        names = self.key_names()
        wanted = [
            tuple(zip(names, map(variant.decode, key_order.decode(key)), strict=True))
            for key in keys
        ]
        with self._translated():
            rows = await asyncio.to_thread(self.found, wanted)
        found = dict(_compared(*row) for row in rows)
        # A server to which 'a' and 'A' are one, or 1.0 and 1.00, finds the one for the other.
        return {key: found[key] for key in keys if key in found}

    async def close(self) -> None:
        """Let go of connections."""
        self._server.close()


def _compared(key: Key, columns: Mapping[str, Scalar | None]) -> tuple[bytes, Columns]:
    encoded = key_order.encode([variant.encode(value) for _, value in key])
    return encoded, {name: value for name, value in columns.items() if value is not None}
