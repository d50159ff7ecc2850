"""Rows of MariaDB that rowtide refuses wait with their key; all others flow."""

from __future__ import annotations

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.cli.client import ProtocolClient
from rowtide.deploy.up import Ready
from tests.connectors.parked_source_rows import ParkedStory, check_parked_rows
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_a_refused_row_waits_with_its_key(
    server: Ready,
    rows: ProtocolClient,
    mariadb: SqlServer,
    processes: ConnectorProcesses,
    connector: Run,
) -> None:
    mariadb.execute("CREATE TABLE shop.parked_here (id INT PRIMARY KEY, v LONGTEXT, n INT)")
    where = {"host": "127.0.0.1", "port": mariadb.port, "user": "root"}
    source = {"kind": "mysql", **where, "tables": ["shop.parked_here"]}
    declare(server, yaml_of("refusing-mysql", {"source": source, "lease_ms": 1000}))
    story = ParkedStory(
        "refusing-mysql", "parked_here", mariadb.execute, rows, processes, connector
    )
    try:
        check_parked_rows(story)
    finally:
        connector("delete", "refusing-mysql", "--yes")
