"""Rows of PostgreSQL that rowtide refuses wait with their key; all others flow."""

from __future__ import annotations

import pytest

from demo.servers.postgres import HOST, PostgreSQL
from rowtide.cli.client import ProtocolClient
from rowtide.deploy.up import Ready
from tests.connectors.parked_source_rows import ParkedStory, check_parked_rows
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run

pytestmark = pytest.mark.system


def test_a_refused_row_waits_with_its_key(
    server: Ready,
    rows: ProtocolClient,
    postgres: PostgreSQL,
    processes: ConnectorProcesses,
    connector: Run,
) -> None:
    postgres.execute("CREATE TABLE shop.parked_there (id int PRIMARY KEY, v text, n int)")
    where = {"host": HOST, "port": postgres.port, "user": "postgres", "database": "shop"}
    source = {"kind": "postgres", **where, "tables": ["shop.*"]}
    declare(server, yaml_of("parking", {"source": source, "lease_ms": 1000}))
    story = ParkedStory("parking", "parked_there", postgres.execute, rows, processes, connector)
    try:
        check_parked_rows(story)
    finally:
        connector("delete", "parking", "--yes")
