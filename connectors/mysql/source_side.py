"""A table of MariaDB as ``verify`` compares rowtide's with it: read as a snapshot reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.mysql.source_server import Server, translated
from rowtide.connectors.mysql.source_settings import SourceSettings
from rowtide.connectors.mysql.source_snapshot import Snapshots
from rowtide.connectors.mysql.source_tables import followed_tables
from rowtide.connectors.rows import SourceRow
from rowtide.core import key, variant
from rowtide.core.variant import Scalar

__all__ = ["MySqlSide"]

Columns = Mapping[str, Scalar]


class MySqlSide:
    """See ``SourceSide``. Making one connects, and blocks. Raises SettingsRefused."""

    def __init__(self, settings: SourceSettings, target: str) -> None:
        self._settings = settings
        self._server = Server(settings)
        found = [t for t in followed_tables(self._server).values() if t.target == target]
        if not found:
            self._server.close()
            raise SettingsRefused(f"No table of the source becomes {target}.")
        self._table = found[0]
        self._snapshots = Snapshots(self._server, epoch=0, run=0)

    async def rows(self) -> AsyncIterator[tuple[bytes, Columns]]:
        """Give all rows, see ``SourceSide.rows``."""
        cursor: list[str] | None = None
        while True:
            with translated(self._settings):
                chunk = await asyncio.to_thread(self._snapshots.chunk, self._table, cursor)
            for row in chunk.rows:
                yield _encoded(row), _columns(row)
            cursor = chunk.cursor
            if cursor is None:
                return

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Columns]:
        """Return rows of keys, see ``SourceSide.look_up``."""
        names = [column.name for column in self._table.target_key]
        wanted = [
            tuple(zip(names, map(variant.decode, key.decode(encoded)), strict=True))
            for encoded in keys
        ]
        with translated(self._settings):
            rows = await asyncio.to_thread(self._snapshots.look_up, self._table, wanted)
        found = {_encoded(row): _columns(row) for row in rows}
        # A server to which 'a' and 'A' are one finds the one for the other.
        return {encoded: found[encoded] for encoded in keys if encoded in found}

    async def close(self) -> None:
        """Let go of the connection."""
        self._server.close()


def _encoded(row: SourceRow) -> bytes:
    return key.encode([variant.encode(value) for _, value in row.key])


def _columns(row: SourceRow) -> Columns:
    return {name: value for name, value in (row.columns or {}).items() if value is not None}
