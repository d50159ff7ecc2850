"""The settings of a PostgreSQL source, from its file."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.sources.tables import check_names

__all__ = ["PostgresSourceSettings", "parse_settings"]

PORT = 5432
CHUNK_ROWS, CHUNK_ROWS_MAX = 8000, 100_000
"""Two full requests to rowtide. A partial request would take the time of a full append."""
NAME_BYTES_MAX = 63
TLS = ("disable", "prefer", "require", "verify-ca", "verify-full")
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}\Z")


@dataclass(frozen=True, slots=True)
class PostgresSourceSettings:
    """The database to follow, and its tables: ``tables`` without those of ``without``.

    ``keys`` has key columns by table, if they are not those of the primary key.
    ``publication`` and ``slot`` are created if they are missing. A slot is for one
    reader: two connectors on one slot take changes from each other. ``chunk_rows`` are
    read in one query of a copy, fewer if rows are wide. A low number takes round trips.
    """

    host: str
    port: int
    user: str
    password: str
    database: str
    tables: tuple[str, ...]
    without: tuple[str, ...]
    names: Mapping[str, str]
    keys: Mapping[str, tuple[str, ...]]
    publication: str
    slot: str
    chunk_rows: int = CHUNK_ROWS
    tls: str = "prefer"

    def wants(self, full_name: str) -> bool:
        """True if a table, given as schema.table, is followed."""
        return any(fnmatchcase(full_name, pattern) for pattern in self.tables) and not any(
            fnmatchcase(full_name, pattern) for pattern in self.without
        )

    def target(self, schema: str, table: str) -> str:
        """Return the name of a table in rowtide, by ``names`` or without its schema."""
        return self.names.get(f"{schema}.{table}", table)


def parse_settings(fields: Fields, connector: str) -> PostgresSourceSettings:
    """Return the settings of a connector. Raises SettingsRefused."""
    tables = fields.texts("tables")
    if not tables:
        raise SettingsRefused(f"{fields.where}.tables must name tables, as schema.table.")
    without = fields.texts("except")
    for setting, pattern in [("tables", p) for p in tables] + [("except", p) for p in without]:
        if "." not in pattern:
            raise SettingsRefused(
                f"{fields.where}.{setting} must name tables as schema.table, but has {pattern!r}."
            )
    names, keys = fields.inner("names"), fields.inner("keys")
    own = _own_name(connector)
    slot = fields.text("slot", own)
    if not _SLOT_NAME.match(slot):
        raise SettingsRefused(
            f"{fields.where}.slot must have 1 to {NAME_BYTES_MAX} characters of a-z, 0-9 and _, "
            f"but is {slot!r}."
        )
    settings = PostgresSourceSettings(
        host=fields.text("host"),
        port=fields.integer("port", PORT, least=1, most=65535),
        user=fields.text("user"),
        password=fields.text("password", ""),
        database=fields.text("database"),
        tables=tables,
        without=without,
        names={name: names.text(name) for name in names.names()},
        keys={name: keys.texts(name) for name in keys.names()},
        publication=fields.text("publication", own),
        slot=slot,
        chunk_rows=fields.integer("chunk_rows", CHUNK_ROWS, least=1, most=CHUNK_ROWS_MAX),
        tls=fields.choice("tls", TLS, "prefer"),
    )
    check_names(fields, settings.wants, ("names", "keys"))
    return settings


def _own_name(connector: str) -> str:
    """Return a valid slot name that no other connector has."""
    plain = re.sub(r"[^a-z0-9_]", "_", connector)
    if plain != connector or len(plain) > 50:
        plain = f"{plain[:40]}_{zlib.crc32(connector.encode()):08x}"
    return f"rowtide_{plain}"
