"""A table of the server for ``verify``, read like a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.mysql.gtids import DomainGtids
from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.server import MySqlServer, map_errors
from rowtide.connectors.sources.mysql.settings import MySqlSourceSettings
from rowtide.connectors.sources.mysql.snapshot import Snapshots
from rowtide.connectors.sources.mysql.tables import list_tables
from rowtide.connectors.sources.side import Found, ServerSide

__all__ = ["MySqlSide"]


class MySqlSide(ServerSide[MySqlServer, MySqlTable]):
    """See ``SourceSide``. The constructor connects and blocks. Raises SettingsRefused."""

    def __init__(self, settings: MySqlSourceSettings, target: str) -> None:
        super().__init__(
            MySqlServer(settings),
            partial(_fit, target),
            target,
            map_errors=partial(map_errors, settings),
        )
        self._nothing = self._server.log.gtids("") or DomainGtids()
        self._snapshots = Snapshots(self._server, epoch=0, run=0)

    def key_names(self) -> Sequence[str]:
        """See ``ServerSide``."""
        return [column.name for column in self._table.target_key]

    def page(self, cursor: list[str] | None) -> tuple[Found, list[str] | None]:
        """See ``ServerSide``."""
        chunk = self._snapshots.chunk(self._table, cursor, self._nothing)
        return _list_rows(chunk.rows), chunk.cursor

    def find_rows(self, keys: Sequence[Key]) -> Found:
        """See ``ServerSide``."""
        return _list_rows(self._snapshots.look_up(self._table, keys, self._nothing).rows)


def _fit(target: str, server: MySqlServer) -> Mapping[str, MySqlTable]:
    """Return the followed tables. Raises SettingsRefused if this one can't be followed."""
    found = list_tables(server)
    for table in found.unfit.values():
        if table.target == target and all(fit.target != target for fit in found.fit.values()):
            raise SettingsRefused(f"{table.full_name}: {table.reason}. {table.remedy}")
    return found.fit


def _list_rows(rows: Iterable[SourceRow]) -> Found:
    return [(row.key, row.columns or {}) for row in rows]
