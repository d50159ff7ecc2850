"""The connectors of the demo, as their YAML file declares them."""

from __future__ import annotations

import yaml

from demo.replication.origin import DATABASE
from demo.source import TABLES

__all__ = ["RUNNERS", "SINKS", "SOURCE", "declared", "named"]

SOURCE = "origin"
SINKS = ("search", "analytics", "replica")


def named(sink: str, table: str) -> str:
    """Return the name of the connector that brings a table to a sink."""
    return f"{table}-{sink}"


RUNNERS = {
    "source reader": (SOURCE,),
    **{f"{sink} sink": tuple(named(sink, table.name) for table in TABLES) for sink in SINKS},
}
"""Which process runs which connectors."""


def declared(origin_port: int, replica_port: int, search_port: int) -> str:
    """Return the file's text."""
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
            connectors[named(sink, table.name)] = {"table": table.name, "sink": {**settings}}
    return yaml.safe_dump({"connectors": connectors}, sort_keys=False)
