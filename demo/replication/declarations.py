"""The connectors of the demo, as in their YAML file."""

from __future__ import annotations

import yaml

from demo.replication.origin import DATABASE
from demo.source import TABLES

__all__ = ["RUNNERS", "SINKS", "SOURCE", "connector_name", "declaration_text"]

SOURCE = "origin"
SINKS = ("search", "analytics", "replica")


def connector_name(sink: str, table: str) -> str:
    """Return the name of the connector from a table to a sink."""
    return f"{table}-{sink}"


RUNNERS = {
    "source reader": (SOURCE,),
    **{
        f"{sink} sink": tuple(connector_name(sink, table.name) for table in TABLES)
        for sink in SINKS
    },
}
"""The connectors of each process."""


def declaration_text(origin_port: int, replica_port: int, search_port: int) -> str:
    """Return the text of the YAML file."""
    connectors: dict[str, object] = {
        SOURCE: {
            "source": {
                "kind": "mysql",
                "host": "127.0.0.1",
                "port": origin_port,
                "user": "root",
                "password": "",
                "tables": [f"{DATABASE}.*"],
            }
        }
    }
    targets: dict[str, dict[str, object]] = {
        "search": {"kind": "opensearch", "url": f"http://127.0.0.1:{search_port}"},
        "analytics": {"kind": "duckdb"},
        "replica": {
            "kind": "mysql",
            "host": "127.0.0.1",
            "port": replica_port,
            "user": "root",
            "password": "",
            "database": DATABASE,
        },
    }
    for sink, settings in targets.items():
        for table in TABLES:
            connectors[connector_name(sink, table.name)] = {
                "table": table.name,
                "sink": {**settings},
            }
    return yaml.safe_dump({"connectors": connectors}, sort_keys=False)
