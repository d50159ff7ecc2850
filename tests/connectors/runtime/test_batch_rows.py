"""How many changes a sink is given at once."""

from __future__ import annotations

import pytest

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.sink_run import follower_settings

GIVEN = """
delta       -       5000
kafka       -       5000
webhook     -       1000
delta       10      10
"""
SETTINGS = {"kafka": {"brokers": "localhost:1"}, "webhook": {"url": "http://localhost:1"}}


@pytest.mark.parametrize("line", GIVEN.strip().splitlines())
def test_the_declaration_says_so_or_else_the_sink(line: str) -> None:
    kind, declared, rows = line.split()
    sink = {"kind": kind, **SETTINGS.get(kind, {})}
    document: dict[str, object] = {"table": "t", "sink": sink}
    if declared != "-":
        document["batch_rows"] = int(declared)
    made = make_sink(Fields(sink, "sink"), ConnectorContext("c", ""))
    settings = follower_settings(parse_document("c", document), made)
    assert settings.batch_changes_max == int(rows)
