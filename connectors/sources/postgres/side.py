"""A table of PostgreSQL for ``verify``, read like a copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import Key
from rowtide.connectors.sources.postgres.chunks import Chunks
from rowtide.connectors.sources.postgres.publication import publication
from rowtide.connectors.sources.postgres.server import PostgresServer, map_errors
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings
from rowtide.connectors.sources.postgres.tables import PostgresTable, read_tables
from rowtide.connectors.sources.side import Found, ServerSide

__all__ = ["PostgresSide"]


class PostgresSide(ServerSide[PostgresServer, PostgresTable]):
    """See ``SourceSide``. The constructor connects and blocks. Raises SettingsRefused."""

    def __init__(self, settings: PostgresSourceSettings, target: str) -> None:
        super().__init__(
            PostgresServer(settings),
            partial(_tables, target=target),
            target,
            map_errors=partial(map_errors, settings),
        )
        self._chunks = Chunks(self._server)

    def key_names(self) -> Sequence[str]:
        """See ``ServerSide``."""
        return [column.name for column in self._table.key]

    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """See ``ServerSide``."""
        return self._chunks.page(self._table, cursor)

    def find_rows(self, keys: Sequence[Key]) -> Found:
        """See ``ServerSide``."""
        return self._chunks.look_up(self._table, keys)


def _tables(server: PostgresServer, *, target: str) -> dict[str, PostgresTable]:
    """Return the tables that can be followed. Raises SettingsRefused if ``target`` can't be."""
    made = publication(server)
    found = read_tables(server, {}, generated=made is not None and made.generated)
    for fault in found.unfit.values():
        # It is not known here which of two tables of one name is followed.
        if fault.target == target:
            raise SettingsRefused(str(fault))
    return found.fit
