"""Whatever happens to rows, shards and processes, MariaDB ends as the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.servers.mariadb import HOST, MariaDB
from rowtide.deploy.up import Ready
from tests.connectors.histories import check_history

pytestmark = pytest.mark.system


def test_any_history_ends_in_the_table(
    server: Ready, mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    where = {"host": HOST, "port": mariadb.port, "user": "root", "database": database}
    settings = {"kind": "mysql", **where}
    check_history(server, tmp_path, settings, mixed=True, processes_max=3, steps=12)
