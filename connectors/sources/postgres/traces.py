"""What a source creates at its server and leaves there: a slot, which retains the log,
and a publication.

All calls block.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.publication import withdraw
from rowtide.connectors.sources.postgres.server import (
    IN_USE,
    PostgresServer,
    quote_name,
    quote_text,
)
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings

__all__ = ["erase", "publication_trace", "slot_trace"]

READ_S_MAX = 10.0
"""How long the server may take to notice that no process reads a slot any more."""
LOOK_S = 0.2
ANSWER_MS_MAX = 10_000


def slot_trace(settings: PostgresSourceSettings) -> str:
    """Return a description of the slot, for people."""
    return (
        f"the slot {settings.slot} in {_where(settings)}, for which the server keeps its log until "
        f"SELECT pg_drop_replication_slot({quote_text(settings.slot)})"
    )


def publication_trace(settings: PostgresSourceSettings) -> str:
    """Return a description of the publication, for people."""
    name = settings.publication
    return (
        f"the publication {name} in {_where(settings)}; if no other program uses it, "
        f"DROP PUBLICATION {quote_name(name)}"
    )


def erase(settings: PostgresSourceSettings) -> Sequence[str]:
    """Drop the slot, and the publication if it was made for it. Return what is left."""
    server = PostgresServer(settings)
    try:
        server.run(f"SET statement_timeout = {ANSWER_MS_MAX}")
        left = []
        if not _drop_slot(server):
            left.append(slot_trace(settings))
        if withdraw(server):
            left.append(publication_trace(settings))
        return left
    finally:
        server.close()


def _drop_slot(server: PostgresServer) -> bool:
    """Drop the slot if there is one. False if it is not ours or is being read."""
    name, until_s = server.settings.slot, time.monotonic() + READ_S_MAX
    while True:
        try:
            if server.slot(name) is not None:
                server.drop_slot(name)
            return True
        except SettingsRefused:
            return False
        except IN_USE:
            if time.monotonic() > until_s:
                return False
            time.sleep(LOOK_S)


def _where(settings: PostgresSourceSettings) -> str:
    return f"database {settings.database} at {settings.host}:{settings.port}"
