"""From a table through rowtide into a table of the same types: ``verify`` calls them equal."""

from __future__ import annotations

import pytest
import yaml
from click.testing import CliRunner

from demo.servers.sql_server import SqlServer
from rowtide.cli.client import ProtocolClient
from rowtide.cli.main import main
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

pytestmark = pytest.mark.system

COLUMNS = {
    "d": ("DECIMAL(20,4)", ["1.5", "-0.0001", "NULL"]),
    "f": ("FLOAT", ["0.1", "-1e30", "0"]),
    "t3": ("DATETIME(3)", ["'2024-02-29 01:02:03.400'", "'0000-00-00'", "NULL"]),
    "ts": ("TIMESTAMP(6) NULL", ["'2024-07-01 12:00:00.000001'", "'2024-12-01'", "NULL"]),
    "t2": ("TIME(2)", ["'-01:02:03.45'", "'838:59:59'", "NULL"]),
    "y": ("YEAR", ["2024", "1901", "NULL"]),
    "b1": ("BIT(1)", ["1", "0", "NULL"]),
    "b64": ("BIT(64)", ["18446744073709551615", "5", "NULL"]),
    "u": ("BIGINT UNSIGNED", ["18446744073709551615", "9223372036854775807", "NULL"]),
    "e": ("ENUM('x','Y')", ["'x'", "'Y'", "NULL"]),
    "s": ("SET('x','Y','z')", ["'z,x'", "''", "NULL"]),
    "c": ("CHAR(5)", ["'ab '", "''", "NULL"]),
    "bin": ("BINARY(4)", ["'a'", "x'00ff'", "NULL"]),
    "vb": ("VARBINARY(4)", ["x'6100'", "''", "NULL"]),
    "dt": ("DATE", ["'2024-02-29'", "'0000-00-00'", "NULL"]),
    "ok": ("BOOLEAN", ["TRUE", "FALSE", "NULL"]),
    "j": ("JSON", ["""'{"b": [1.0, "ü"]}'""", "'null'", "NULL"]),
}


def test_a_copy_of_a_copy_is_equal(
    server: Ready,
    rows: ProtocolClient,
    mariadb: SqlServer,
    processes: ConnectorProcesses,
    connector: Run,
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    values = [", ".join(given[at] for _, given in COLUMNS.values()) for at in range(3)]
    mariadb.execute(
        f"CREATE TABLE shop.copied_types (id BIGINT PRIMARY KEY, {columns})",
        "CREATE DATABASE copies",
        "CREATE TABLE copies.copied_types LIKE shop.copied_types",
        "SET SESSION sql_mode = ''",
        *(f"INSERT INTO shop.copied_types VALUES ({at}, {v})" for at, v in enumerate(values)),
    )
    where = {"kind": "mysql", "host": "127.0.0.1", "port": mariadb.port, "user": "root"}
    declared = {
        "types-in": {"source": {**where, "tables": ["shop.copied_types"]}, "lease_ms": 1000},
        "types-out": {
            "table": "copied_types",
            "sink": {**where, "database": "copies"},
            "lease_ms": 1000,
        },
    }
    declare(server, yaml.safe_dump({"connectors": {"types-in": declared["types-in"]}}))
    processes.start("types-in", "types-out")
    try:
        until(lambda: "copied_types" in rows.list_table(), message=processes.said)
        declare(server, yaml.safe_dump({"connectors": declared}))
        count = "SELECT COUNT(*) FROM copies.copied_types"
        until(lambda: mariadb.rows(count) == [(3,)], message=processes.said)
        for ends in (("types-in", "copied_types"), ("copied_types", "types-out")):
            found = CliRunner().invoke(main, ["verify", *ends])
            assert found.exit_code == 0, found.output
            assert "3 rows, 3 held" in found.output
        mariadb.execute("UPDATE copies.copied_types SET f = 0.10000001 WHERE id = 0")
        found = CliRunner().invoke(main, ["verify", "copied_types", "types-out"])
        assert found.output.splitlines()[0] == "different  0: f"
    finally:
        processes.stop_all()
        connector("delete", "types-in", "--yes")
        connector("delete", "types-out", "--yes")
