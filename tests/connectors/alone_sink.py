"""The SQLite sink as one that is alone: its file is in the connector's folder on this machine."""

from __future__ import annotations

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.sinks.sink import Sink
from tests.connectors.sqlite_sink import SqliteSink

__all__ = ["KIND", "make_sink"]

KIND = "tests.connectors.alone_sink"


def make_sink(fields: Fields, surroundings: ConnectorContext) -> Sink:
    """Return a sink into the connector's folder."""
    return AloneSink(f"{surroundings.folder}/rows.db")


class AloneSink(SqliteSink):
    """One process at a time."""

    alone = True
