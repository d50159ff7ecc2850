"""Whatever happens to rows, shards and processes, the server ends as the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.servers.sql_server import HOST, SqlServer
from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    "sql_server", ["mariadb", pytest.param("mysql", marks=pytest.mark.slow)], indirect=True
)
def test_any_history_ends_in_the_table(
    server: Ready, sql_server: SqlServer, database: str, tmp_path: Path
) -> None:
    where = {"host": HOST, "port": sql_server.port, "user": "root", "database": database}
    settings = {"kind": "mysql", **where}
    check_history(server, tmp_path, settings, mixed=True, processes_max=3, steps=12)
