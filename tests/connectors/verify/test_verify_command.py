"""``rowtide verify`` on the command line: a connector runs, and the test spoils its target."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Put
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.deploy.up import Ready
from tests.api.calls import key
from tests.changes.conftest import admin, client, make_table, server, table
from tests.connectors.processes import ROOT, environment
from tests.connectors.verify.read_back import KIND

__all__ = ["admin", "client", "make_table", "server", "table"]

pytestmark = pytest.mark.system

ROWS = 30


def all_variables(server: Ready) -> dict[str, str]:
    """Return what commands need to find server and tests."""
    return {**os.environ, **environment(server), "PYTHONPATH": str(ROOT)}


def rowtide(server: Ready, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [str(Path(sys.executable).with_name("rowtide")), *arguments]
    return subprocess.run(
        command, env=all_variables(server), capture_output=True, text=True, timeout=120, check=False
    )


@contextmanager
def running(server: Ready, *names: str) -> Iterator[None]:
    """Run connectors."""
    command = [str(Path(sys.executable).with_name("rowtide")), "connector", "run", *names]
    process = subprocess.Popen(command, env=all_variables(server), start_new_session=True)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture
def sqlite_file(server: Ready, admin: ProtocolClient, table: str, tmp_path: Path) -> Iterator[Path]:
    """A file with the table's rows, which a connector goes on filling."""
    for number in range(ROWS):
        admin.put_row(table, key(f"{number:02}", 1), [Put("n", number), Put("s", "ü" * number)])
    file, name = tmp_path / "rows.sqlite", f"copy-{table.replace('_', '-').lower()}"
    declared = {"connectors": {name: {"table": table, "sink": {"kind": KIND, "path": str(file)}}}}
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(declared))
    applied = rowtide(server, "connector", "apply", str(tmp_path / "connectors.yaml"))
    assert applied.returncode == 0, applied.stderr
    with running(server, name):
        yield file


def name_of(file: Path) -> str:
    declared = yaml.safe_load((file.parent / "connectors.yaml").read_text())
    return str(next(iter(declared["connectors"])))


def test_equal_ends_and_a_planted_difference(
    server: Ready, admin: ProtocolClient, table: str, sqlite_file: Path
) -> None:
    name = name_of(sqlite_file)
    result = rowtide(server, "verify", table, name)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{table} -> {name} ({KIND}): 30 rows, 30 held, 1 range: equal\n"
    file = sqlite3.connect(sqlite_file, timeout=30)
    with file:
        file.execute("update rows set columns = '{}' where key = ?", (encode_key("07", 1),))
        file.execute("delete from rows where key = ?", (encode_key("08", 1),))
        file.execute("insert into rows values (?, 1, '{}')", (encode_key("99", 9),))
    file.close()
    result = rowtide(server, "verify", table, name)
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "different  07, 1: n, s",
        "missing    08, 1",
        "surplus    99, 9",
        f"{table} -> {name} ({KIND}): 30 rows, 30 held, 1 range: 3 rows differ",
    ]
    found = json.loads(rowtide(server, "verify", table, name, "-o", "json").stdout)
    assert not found["equal"]
    assert found["differences"][0] == {
        "kind": "different",
        "key": ["07", 1],
        "columns": ["n", "s"],
    }


def test_what_can_not_be_compared_is_refused(server: Ready, table: str, sqlite_file: Path) -> None:
    name = name_of(sqlite_file)
    result = rowtide(server, "verify", "another", name)
    assert result.returncode == 1
    assert result.stderr == f"Error: Connector {name} reads the table {table}, not another\n"
    result = rowtide(server, "verify", table, "nobody")
    assert result.returncode == 1
    assert "nobody is no connector that reads" in result.stderr


def encode_key(*values: str | int) -> bytes:
    return key_order.encode(map(variant.encode, values))
