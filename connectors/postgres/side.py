"""A table of PostgreSQL as ``verify`` compares rowtide's with it: read as it is copied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.postgres.chunks import Chunks
from rowtide.connectors.postgres.rows import Cells
from rowtide.connectors.postgres.server import Server, translated
from rowtide.connectors.postgres.settings import SourceSettings
from rowtide.connectors.postgres.tables import followed_tables
from rowtide.connectors.rows import Key
from rowtide.core import key, variant
from rowtide.core.variant import Scalar

__all__ = ["PostgresSide"]

Columns = Mapping[str, Scalar]


class PostgresSide:
    """See ``SourceSide``. Making one connects, and blocks. Raises SettingsRefused."""

    def __init__(self, settings: SourceSettings, target: str) -> None:
        self._settings = settings
        self._server = Server(settings)
        found = [t for t in followed_tables(self._server).values() if t.target == target]
        if not found:
            self._server.close()
            raise SettingsRefused(f"No table of the source becomes {target}.")
        self._table = found[0]
        self._chunks = Chunks(self._server)

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Give all rows, see ``SourceSide.rows``."""
        cursor: list[str] | None = None
        while True:
            with translated(self._settings):
                found, cursor = await asyncio.to_thread(self._chunks.page, self._table, cursor)
            for one, cells in found:
                yield _encoded(one), _columns(cells)
            if cursor is None:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows of keys, see ``SourceSide.look_up``."""
        names = [column.name for column in self._table.key]
        wanted = [
            tuple(zip(names, map(variant.decode, key.decode(encoded)), strict=True))
            for encoded in keys
        ]
        with translated(self._settings):
            found = await asyncio.to_thread(self._chunks.look_up, self._table, wanted)
        rows = {_encoded(one): _columns(cells) for one, cells in found}
        # A server to which 1.0 and 1.00 are one finds the one for the other.
        return {encoded: rows[encoded] for encoded in keys if encoded in rows}

    async def close(self) -> None:
        """Let go of the connection."""
        self._server.close()


def _encoded(one: Key) -> bytes:
    return key.encode([variant.encode(value) for _, value in one])


def _columns(cells: Cells) -> Columns:
    return {name: value for name, value in cells.items() if value is not None}
