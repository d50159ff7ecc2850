"""One running server for a whole test run, and tables on it that go when their test has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count

import pytest

from rowtide.cli.client import Client, ServerError
from rowtide.core.schema import INTEGER, STRING, KeyColumn
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.up import NotReady, Ready, Up

__all__ = ["MakeTable", "client", "make_table", "server"]

MakeTable = Callable[..., str]
KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER))
_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that lives as long as the test run: a process of its own."""
    folder = tmp_path_factory.mktemp("server")
    with (folder / "output").open("wb") as output:
        options = ["--port", "0"]
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


def drop(client: Client, name: str) -> None:
    """Delete a table; where the limit of table operations is met, again as an SDK would."""
    for _ in range(100):
        try:
            client.delete_table(name)
        except ServerError as error:
            if error.code != "OTSQuotaExhausted":
                raise
            time.sleep(0.1)  # The limit is one of time: ten operations a second.
        else:
            return
    raise AssertionError(f"{name} could not be deleted in 10 s")


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
            made.callback(drop, client, name)
            return name

        yield make
