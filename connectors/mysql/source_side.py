"""A table of the server as ``verify`` compares rowtide's with it: read as a snapshot reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from rowtide.connectors.mysql.source_gtids import DomainGtids
from rowtide.connectors.mysql.source_server import Server, translated
from rowtide.connectors.mysql.source_settings import SourceSettings
from rowtide.connectors.mysql.source_snapshot import Snapshots
from rowtide.connectors.mysql.source_tables import followed_tables
from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.source_side import Found, ServerSide
from rowtide.connectors.source_tables import table_of

__all__ = ["MySqlSide"]


class MySqlSide(ServerSide):
    """See ``SourceSide``. Making one connects, and blocks. Raises SettingsRefused."""

    def __init__(self, settings: SourceSettings, target: str) -> None:
        self._settings = settings
        self._server = Server(settings)
        try:
            self._table = table_of(followed_tables(self._server).values(), target)
        except BaseException:
            self._server.close()
            raise
        self._nothing = self._server.log.gtids("") or DomainGtids()
        self._snapshots = Snapshots(self._server, epoch=0, run=0)
        super().__init__([column.name for column in self._table.target_key])

    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """See ``ServerSide``."""
        chunk = self._snapshots.chunk(self._table, cursor, self._nothing)
        return _found(chunk.rows), chunk.cursor

    def found(self, keys: Sequence[Key]) -> Found:
        """See ``ServerSide``."""
        return _found(self._snapshots.look_up(self._table, keys, self._nothing).rows)

    def translated(self) -> AbstractContextManager[None]:
        """See ``ServerSide``."""
        return translated(self._settings)

    def let_go(self) -> None:
        """See ``ServerSide``."""
        self._server.close()


def _found(rows: Iterable[SourceRow]) -> Found:
    return [(row.key, row.columns or {}) for row in rows]
