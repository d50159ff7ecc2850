"""Columns of MariaDB that are left out or masked are nowhere in rowtide."""

from __future__ import annotations

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.cli.client import ProtocolClient
from rowtide.deploy.up import Ready
from tests.connectors.masked_source_rows import SECRET, check_masked_rows, columns_of
from tests.connectors.parked_source_rows import ParkedStory
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run

pytestmark = pytest.mark.system


def test_columns_are_masked_before_they_leave_the_process(
    server: Ready,
    rows: ProtocolClient,
    mariadb: SqlServer,
    processes: ConnectorProcesses,
    connector: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROWTIDE_TEST_MASK", SECRET)
    mariadb.execute(
        "CREATE TABLE shop.masked_here (id INT PRIMARY KEY, v LONGTEXT, n INT, email VARCHAR(99),"
        " card VARCHAR(99), password VARCHAR(99))"
    )
    where = {"host": "127.0.0.1", "port": mariadb.port, "user": "root"}
    source = {"kind": "mysql", **where, "tables": ["shop.masked_here"]}
    document = {"source": source, "columns": columns_of("shop.masked_here"), "lease_ms": 1000}
    declare(server, yaml_of("masking-mysql", document))
    story = ParkedStory("masking-mysql", "masked_here", mariadb.execute, rows, processes, connector)
    try:
        check_masked_rows(story)
    finally:
        connector("delete", "masking-mysql", "--yes")
