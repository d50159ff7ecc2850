"""A table that connectors read, processes that run them, and the command line beside them."""

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
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Ready
from tests.api.conftest import MakeTable
from tests.connectors.processes import ConnectorProcesses, environment
from tests.workers.conftest import Retrying

Run = Callable[..., Any]


@pytest.fixture
def rows(server: Ready) -> Iterator[ProtocolClient]:
    """A client that repeats what SDKs repeat."""
    with Retrying(**server._asdict()) as connected:
        yield connected


@pytest.fixture
def orders(make_table: MakeTable) -> str:
    """A table with a stream, whose key is one text."""
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    return make_table((KeyColumn("id", STRING),), stream=stream)


@pytest.fixture
def processes(server: Ready, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """No process yet; the test starts them."""
    with ExitStack() as closing:
        yield ConnectorProcesses(server, tmp_path, closing)


@pytest.fixture
def connector(server: Ready, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``rowtide connector``; return the document that it prints where it prints JSON."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)

    def run(*arguments: object, code: int = 0) -> Any:
        result = CliRunner().invoke(main, ["connector", *map(str, arguments)])
        assert result.exit_code == code, result.output
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return json.loads(result.stdout) if "json" in arguments else result.output

    return run
