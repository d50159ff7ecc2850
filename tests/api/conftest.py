"""One running server for a whole test run, and tables on it that go when their test has ended.

Its logs are in the embedded Kafka, or in a local log with ``ROWTIDE_TEST_LOG=local``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count

import pytest

from rowtide.cli.client import Client
from rowtide.core.schema import INTEGER, STRING, KeyColumn
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.up import NotReady, Ready, Up

__all__ = ["KEY", "LOG", "MakeTable", "client", "make_table", "server"]

MakeTable = Callable[..., str]
KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER))
LOG = ["--log", os.environ.get("ROWTIDE_TEST_LOG", "kafka")]
"""Options of every server that these tests start."""
_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that lives as long as the test run: a process of its own."""
    folder = tmp_path_factory.mktemp("server")
    with (folder / "output").open("wb") as output:
        # How often tables may be made is a bound of its own: test_table_throttle.py.
        options = [*LOG, "--port", "0", "--table-operations-per-s", "0"]
        with Up(folder / "data", options=options, output=output) as up:
            try:
                ready = up.start()
            except NotReady as error:
                said = (folder / "output").read_text(errors="replace")
                raise NotReady(f"{error}; it said:\n{said[-3000:]}") from None
            yield ready


@pytest.fixture(scope="session")
def client(server: Ready) -> Iterator[Client]:
    """One connection, signed, that sends exactly the messages it is given."""
    with Client(**server._asdict()) as connected:
        yield connected


@pytest.fixture(scope="module")
def make_table(client: Client) -> Iterator[MakeTable]:
    """Make a table under a fresh name; it is deleted after the module's last test."""
    with ExitStack() as made:

        def make(
            key: Sequence[KeyColumn] = KEY,
            *,
            options: pb.TableOptions | None = None,
            stream: pb.StreamSpecification | None = None,
        ) -> str:
            name = f"made_{next(_numbers)}"
            client.create_table(name, key, options=options, stream=stream)
            made.callback(client.delete_table, name)
            return name

        yield make
