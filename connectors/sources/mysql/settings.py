"""The settings of a MySQL source, from its file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.sources.tables import check_names

__all__ = ["MySqlSourceSettings", "parse_settings"]

PORT = 3306
CHUNK_ROWS, CHUNK_ROWS_MAX = 8000, 100_000
"""Two full requests to rowtide. A partial request would take the time of a full append."""
SERVER_IDS = 2**31
"""The first of our server numbers, the upper half. Users give their replicas small numbers."""


@dataclass(frozen=True, slots=True)
class MySqlSourceSettings:
    """The server to follow, and which of its tables.

    ``server_id`` is the number under which the source registers as a replica. If another
    replica has the same number, the server ends its connection. ``chunk_rows`` are read
    in one query of a snapshot: many take memory (at most ``CHUNK_BYTES`` and one row),
    few take round trips.
    """

    host: str
    port: int
    user: str
    password: str
    tables: tuple[str, ...]
    without: tuple[str, ...]
    names: Mapping[str, str]
    keys: Mapping[str, tuple[str, ...]]
    server_id: int
    chunk_rows: int = CHUNK_ROWS
    cascades: bool = False
    tls: bool = False
    cafile: str | None = None

    def target(self, full_name: str) -> str:
        """Return the name in rowtide of a table, given as database.table."""
        return self.names.get(full_name, full_name.split(".", 1)[1])

    def wants(self, database: str, table: str) -> bool:
        """True if a table is followed."""
        return self.wants_full_name(f"{database}.{table}")

    def wants_full_name(self, name: str) -> bool:
        """True if a table, given as database.table, is followed."""
        return any(fnmatchcase(name, pattern) for pattern in self.tables) and not any(
            fnmatchcase(name, pattern) for pattern in self.without
        )

    def wants_some_of(self, database: str) -> bool:
        """True if a table of a database may be followed."""
        return any(fnmatchcase(database, pattern.partition(".")[0]) for pattern in self.tables)


def parse_settings(fields: Fields, connector: str) -> MySqlSourceSettings:
    """Return the settings of a connector. Raises SettingsRefused."""
    tables = fields.texts("tables")
    if not tables:
        raise SettingsRefused(f"{fields.where}.tables must name tables, as database.table.")
    without = fields.texts("except")
    for pattern in (*tables, *without):
        if "." not in pattern:
            raise SettingsRefused(
                f"{fields.where}.tables must name tables as database.table, but has {pattern!r}."
            )
    # If a paused process resumes, its successor's equal number disconnects it.
    number = SERVER_IDS + zlib.crc32(connector.encode()) % (SERVER_IDS - 1)
    settings = MySqlSourceSettings(
        host=fields.text("host"),
        port=fields.integer("port", PORT, least=1, most=65535),
        user=fields.text("user"),
        password=fields.text("password", ""),
        tables=tables,
        without=without,
        names=_names(fields.inner("names")),
        keys=_keys(fields.inner("keys")),
        server_id=fields.integer("server_id", number, least=1, most=2**32 - 1),
        chunk_rows=fields.integer("chunk_rows", CHUNK_ROWS, least=1, most=CHUNK_ROWS_MAX),
        cascades=fields.flag("cascades", False),
        tls=fields.flag("tls", False),
        cafile=fields.text("cafile", "") or None,
    )
    check_names(fields, settings.wants_full_name, ("names", "keys"))
    return settings


def _names(fields: Fields) -> Mapping[str, str]:
    return {name: fields.text(name) for name in fields.names()}


def _keys(fields: Fields) -> Mapping[str, tuple[str, ...]]:
    return {name: fields.texts(name) for name in fields.names()}
