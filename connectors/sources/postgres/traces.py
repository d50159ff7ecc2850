"""What a source makes at its server and leaves there: a slot, which keeps the log, a publication.

Everything blocks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.publication import withdraw
from rowtide.connectors.sources.postgres.server import IN_USE, PostgresServer, quoted, quoted_name
from rowtide.connectors.sources.postgres.settings import PostgresSourceSettings

__all__ = ["erased", "publication_trace", "slot_trace"]

READ_S_MAX = 10.0
"""For so long the server may take to notice that nobody reads a slot any more."""
LOOK_S = 0.2
ANSWER_MS_MAX = 10_000


def slot_trace(settings: PostgresSourceSettings) -> str:
    """Tell of the slot."""
    return (
        f"the slot {settings.slot} in {_where(settings)}, for which the server keeps its log until "
        f"SELECT pg_drop_replication_slot({quoted(settings.slot)})"
    )


def publication_trace(settings: PostgresSourceSettings) -> str:
    """Tell of the publication."""
    name = settings.publication
    return (
        f"the publication {name} in {_where(settings)}; if nobody else reads it, "
        f"DROP PUBLICATION {quoted_name(name)}"
    )


def erased(settings: PostgresSourceSettings) -> Sequence[str]:
    """Drop the slot, and the publication if it was made for it; return what is left."""
    server = PostgresServer(settings)
    try:
        server.run(f"SET statement_timeout = {ANSWER_MS_MAX}")
        left = []
        if not _slot_dropped(server):
            left.append(slot_trace(settings))
        if withdraw(server):
            left.append(publication_trace(settings))
        return left
    finally:
        server.close()


def _slot_dropped(server: PostgresServer) -> bool:
    """Drop the slot, if there is one; return False where it is another's, or somebody reads it."""
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
