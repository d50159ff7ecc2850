"""What a process imports before it does anything: it takes time, and memory as long as it runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
from rowtide.cli.main import main
atexit.register(lambda: print(*sys.modules, sep="\\n", file=sys.stderr))
main()
"""

OF_SERVERS = (
    *("aiokafka", "asyncio", "fastavro", "faust", "httptools", "prometheus_client", "rocksdict"),
    *("tantivy", "uvloop", "rowtide.stream.worker.worker"),
)
OF_FILES = "importlib.metadata", "importlib.resources", "tomllib", "yaml", "zipfile"
OF_CLIENTS = "google.protobuf", "http.client", "rowtide.cli.client", "ssl"


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], (*OF_SERVERS, *OF_FILES, *OF_CLIENTS)),
        (["--help"], (*OF_SERVERS, *OF_FILES, *OF_CLIENTS)),
        (["row", "put", "--help"], (*OF_SERVERS, *OF_FILES)),
        (["status", "--help"], (*OF_SERVERS, *OF_FILES)),
        (["table", "create", "--help"], (*OF_SERVERS, *OF_FILES)),
        (["stream", "tail", "--help"], (*OF_SERVERS, *OF_FILES)),
        (["instance", "create", "--help"], (*OF_SERVERS, *OF_FILES)),
    ],
)
def test_a_command_imports_what_it_uses(arguments: list[str], absent: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout
    assert set(done.stderr.split()) & set(absent) == set()


def test_a_console_loads_no_parser_of_sql_before_a_dashboard_is_read() -> None:
    """It would be a third of an idle console's memory."""
    program = "import sys, rowtide.console.process.serve; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "rowtide.dashboards.declaring.declaration" in loaded
    assert "sqlglot" not in loaded
