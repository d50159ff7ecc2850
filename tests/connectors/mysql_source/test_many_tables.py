"""More tables of MariaDB than an instance may have: the first are followed, the rest say why."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demo.servers.sql_server import SqlServer
from rowtide.cli.client import ProtocolClient
from rowtide.core.values.limits import Limits
from rowtide.deploy.up import Ready, Up
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

pytestmark = [pytest.mark.system, pytest.mark.slow]

TABLES = 70
TABLES_MAX = Limits().tables_per_instance_max


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Ready]:
    """Start a server of its own: its instance has no other tables."""
    options = ["--port", "0", "--table-operations-per-s", "0", "--connectors", "false"]
    with (
        (tmp_path / "output").open("wb") as output,
        Up(tmp_path / "data", options=options, output=output) as up,
    ):
        yield up.start()


def test_as_many_tables_as_fit_are_followed(
    server: Ready,
    rows: ProtocolClient,
    mariadb: SqlServer,
    processes: ConnectorProcesses,
    connector: Run,
) -> None:
    names = [f"many_{number:02}" for number in range(TABLES)]
    mariadb.execute(
        *(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY)" for name in names),
        *(f"INSERT INTO shop.{name} VALUES (1)" for name in names),
    )
    where = {"host": "127.0.0.1", "port": mariadb.port, "user": "root"}
    source = {"kind": "mysql", **where, "tables": ["shop.*"]}
    declare(server, yaml_of("many", {"source": source, "lease_ms": 1000}))
    processes.start("many")

    def standing() -> dict[str, Any]:
        found: dict[str, Any] = connector("status", "many", "--output", "json")[0]
        return found

    def names_that_are(state: str) -> list[str]:
        return [table["target"] for table in standing()["tables"] if table["state"] == state]

    until(
        lambda: len(names_that_are("following")) + standing()["tables_failed"] == TABLES,
        s_max=120.0,
        message=processes.said,
    )
    own = [name for name in rows.list_table() if name not in names]
    fit = TABLES_MAX - len(own)
    assert names_that_are("following") == names[:fit]
    assert names_that_are("failed") == names[fit:]
    until(lambda: standing()["state"] == "running", message=processes.said)
    assert standing()["tables_omitted"] == 0
    for table in standing()["tables"][fit:]:
        assert f"rowtide refuses the table {table['target']}: " in table["reason"]
        assert f"exceeds the quota:{TABLES_MAX}" in table["reason"]
        assert table["remedy"]
    mariadb.execute(*(f"INSERT INTO shop.{name} VALUES (2)" for name in names))
    for name in (names[0], names[fit - 1]):
        until(partial(_has, rows, name), message=processes.said)
    assert f"{len(names) - fit} tables failed" in connector("status", "many", "--tables")
    # Room for one more: it is followed within 10 s, with the rows that it has by now.
    mariadb.execute(f"DROP TABLE shop.{names[0]}")
    until(lambda: names[0] not in names_that_are("following"), message=processes.said)
    rows.delete_table(names[0])
    until(lambda: names[fit] in names_that_are("following"), message=processes.said)
    assert _has(rows, names[fit])
    assert standing()["tables_failed"] == len(names) - fit - 1


def _has(rows: ProtocolClient, table: str) -> bool:
    return rows.get_row(table, [("id", 2)]) is not None
