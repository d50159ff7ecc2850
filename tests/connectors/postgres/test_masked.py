"""Columns of PostgreSQL that are left out or masked are nowhere in rowtide."""

from __future__ import annotations

import pytest

from demo.servers.postgres import HOST, PostgreSQL
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
    postgres: PostgreSQL,
    processes: ConnectorProcesses,
    connector: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROWTIDE_TEST_MASK", SECRET)
    postgres.execute(
        "CREATE TABLE shop.masked_there (id int PRIMARY KEY, v text, n int, email text, card text,"
        " password text)"
    )
    where = {"host": HOST, "port": postgres.port, "user": "postgres", "database": "shop"}
    source = {"kind": "postgres", **where, "tables": ["shop.masked_there"]}
    document = {"source": source, "columns": columns_of("shop.masked_there"), "lease_ms": 1000}
    declare(server, yaml_of("masking", document))
    story = ParkedStory("masking", "masked_there", postgres.execute, rows, processes, connector)
    try:
        check_masked_rows(story)
    finally:
        connector("delete", "masking", "--yes")
