"""One table of a source's server, read by ``verify``: page after page, and by keys."""

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
"""Rows of a server. None is NULL, which is no column in rowtide."""


class SideSession(Protocol):
    """A connection to a server."""

    def close(self) -> None: ...


Server = TypeVar("Server", bound=SideSession)
Table = TypeVar("Table", bound=Followed)


class ServerSide(ABC, Generic[Server, Table]):
    """A ``SourceSide`` of one table. It closes its ``server``.

    ``followed`` returns the server's tables by name. The constructor calls it and blocks.
    Raises SettingsRefused. ``map_errors`` maps errors of the server to errors of a
    source.
    """

    def __init__(
        self,
        server: Server,
        followed: Callable[[Server], Mapping[str, Table]],
        target: str,
        *,
        map_errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._server = server
        self._translated = map_errors
        try:
            self._table = table_of(followed(server).values(), target)
        except BaseException:
            server.close()
            raise

    @abstractmethod
    def key_names(self) -> Sequence[str]:
        """Return the columns of the table's key in rowtide's order."""

    @abstractmethod
    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """Return rows after a cursor and the next cursor, None at the end. Blocks."""

    @abstractmethod
    def find_rows(self, keys: Sequence[Key]) -> Found:
        """Return the rows of some keys, and more if the server treats keys as equal. Blocks."""

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Yield all rows, see ``SourceSide.rows``."""
        cursor: list[str] | None = None
        while True:
            with self._translated():
                found, cursor = await asyncio.to_thread(self.page, cursor)
            for row in found:
                yield _make_comparable(*row)
            if cursor is None:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows by key, see ``SourceSide.look_up``."""
        names = self.key_names()
        wanted = [
            tuple(zip(names, map(variant.decode, key_order.decode(key)), strict=True))
            for key in keys
        ]
        with self._translated():
            rows = await asyncio.to_thread(self.find_rows, wanted)
        found = dict(_make_comparable(*row) for row in rows)
        # A server that treats 'a' and 'A', or 1.0 and 1.00, as equal returns rows of
        # both.
        return {key: found[key] for key in keys if key in found}

    async def close(self) -> None:
        """Close the connections."""
        self._server.close()


def _make_comparable(key: Key, columns: Mapping[str, Scalar | None]) -> tuple[bytes, Columns]:
    encoded = key_order.encode([variant.encode(value) for _, value in key])
    return encoded, {name: value for name, value in columns.items() if value is not None}
