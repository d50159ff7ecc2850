"""A server for dashboards to read, processes that run them, and the command line beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rowtide.cli.client import ProtocolClient
from rowtide.cli.main import main
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, environment
from tests.support.servers import serving
from tests.workers.conftest import Retrying

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that runs no dashboards: the tests do."""
    options = ("--table-operations-per-s", "0", "--connectors", "false")
    with serving(tmp_path_factory.mktemp("server"), *options) as ready:
        yield ready


@pytest.fixture
def rows(server: Ready) -> Iterator[ProtocolClient]:
    """A client that repeats what SDKs repeat."""
    with Retrying(**server._asdict()) as connected:
        yield connected


@pytest.fixture
def processes(server: Ready, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """No process yet; the test starts them."""
    with ExitStack() as closing:
        yield ConnectorProcesses(server, tmp_path, closing)


@pytest.fixture
def rowtide(server: Ready, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``rowtide``; return the document that it prints where it prints JSON."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(main, [*map(str, arguments)])
        assert result.exit_code == code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return json.loads(result.stdout) if "json" in arguments else result.output

    return run
