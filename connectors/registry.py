"""The kinds of connectors, and the module of each.

A module is imported when its kind is first used, so a process needs the libraries of its
own connectors only. A kind with a dot is the name of a module of the user's. Such a
module has ``make_sink`` or ``make_source``, as ours have.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.sinks.sink import Sink
from rowtide.connectors.sources.source import Source

__all__ = ["SINKS", "SOURCES", "ConnectorContext", "make_sink", "make_source"]

SINKS: Mapping[str, str] = {
    "clickhouse": "rowtide.connectors.sinks.clickhouse.sink",
    "delta": "rowtide.connectors.sinks.lake.delta_sink",
    "duckdb": "rowtide.connectors.sinks.duckdb.sink",
    "kafka": "rowtide.connectors.sinks.kafka.sink",
    "mysql": "rowtide.connectors.sinks.mysql.sink",
    "opensearch": "rowtide.connectors.sinks.opensearch.sink",
    "parquet": "rowtide.connectors.sinks.lake.parquet_sink",
    "tantivy": "rowtide.connectors.sinks.tantivy.sink",
    "timeline": "rowtide.connectors.sinks.timeline.sink",
    "webhook": "rowtide.connectors.sinks.webhook.sink",
}
"""Kind of sink to the module that has ``make_sink(fields, surroundings)``."""

SOURCES: Mapping[str, str] = {
    "mysql": "rowtide.connectors.sources.mysql.source",
    "postgres": "rowtide.connectors.sources.postgres.source",
}
"""Kind of source to the module that has ``make_source(fields, surroundings)``."""


class ConnectorContext(NamedTuple):
    """Where a connector runs.

    ``folder`` is the connector's own folder on this machine's disk, for embedded targets.
    It may be lost with the machine. ``endpoint`` is the instance's own, for a sink that
    writes to other tables of the instance. It is None where settings are only checked.
    """

    connector: str
    folder: str
    endpoint: Endpoint | None = None


class _SinkModule(Protocol):
    def make_sink(self, fields: Fields, surroundings: ConnectorContext) -> Sink: ...


class _SourceModule(Protocol):
    def make_source(self, fields: Fields, surroundings: ConnectorContext) -> Source: ...


def make_sink(fields: Fields, surroundings: ConnectorContext) -> Sink:
    """Return the sink that settings describe (``kind`` and its own). Raises
    SettingsRefused.

    This connects to nothing. ``Sink.open`` does.
    """
    module = cast(_SinkModule, _module(SINKS, fields, "make_sink"))
    sink = module.make_sink(fields, surroundings)
    fields.refuse_unknown()
    return sink


def make_source(fields: Fields, surroundings: ConnectorContext) -> Source:
    """Return the source that settings describe. Raises SettingsRefused."""
    module = cast(_SourceModule, _module(SOURCES, fields, "make_source"))
    source = module.make_source(fields, surroundings)
    fields.refuse_unknown()
    return source


def _module(kinds: Mapping[str, str], fields: Fields, makes: str) -> object:
    """Return the module of a kind. The module has the function ``makes``."""
    kind = fields.text("kind")
    if "." not in kind:
        kind = fields.choice("kind", tuple(sorted(kinds)))
    try:
        module = importlib.import_module(kinds.get(kind, kind))
    except ModuleNotFoundError as error:
        if "." in kind:
            raise SettingsRefused(f"{fields.where}: {kind}: {error}.") from error
        if error.name and error.name.startswith("rowtide"):
            raise
        raise SettingsRefused(
            f"{fields.where}: {kind} needs the package {error.name}; "
            f"pip install 'rowtide[connectors]' brings it."
        ) from error
    if not hasattr(module, makes):
        raise SettingsRefused(f"{fields.where}: {kind} has no {makes}.")
    return module
