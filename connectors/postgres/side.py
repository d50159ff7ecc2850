"""A table of PostgreSQL as ``verify`` compares rowtide's with it: read as it is copied."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rowtide.connectors.postgres.chunks import Chunks
from rowtide.connectors.postgres.server import Server, translated
from rowtide.connectors.postgres.settings import SourceSettings
from rowtide.connectors.postgres.tables import followed_tables
from rowtide.connectors.rows import Key
from rowtide.connectors.source_side import Found, ServerSide
from rowtide.connectors.source_tables import table_of

__all__ = ["PostgresSide"]


class PostgresSide(ServerSide):
    """See ``SourceSide``. Making one connects, and blocks. Raises SettingsRefused."""

    def __init__(self, settings: SourceSettings, target: str) -> None:
        self._settings = settings
        self._server = Server(settings)
        try:
            self._table = table_of(followed_tables(self._server).values(), target)
        except BaseException:
            self._server.close()
            raise
        self._chunks = Chunks(self._server)
        super().__init__([column.name for column in self._table.key])

    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """See ``ServerSide``."""
        return self._chunks.page(self._table, cursor)

    def found(self, keys: Sequence[Key]) -> Found:
        """See ``ServerSide``."""
        return self._chunks.look_up(self._table, keys)

    def translated(self) -> AbstractContextManager[None]:
        """See ``ServerSide``."""
        return translated(self._settings)

    def let_go(self) -> None:
        """See ``ServerSide``."""
        self._server.close()
