"""One running server for a whole test run, and tables on it that go when their test has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.deploy.up import Ready
from tests.support.servers import serving
from tests.support.signing import SIGNATURE, headers_v4

__all__ = ["KEY", "MakeTable", "client", "make_table", "server"]

MakeTable = Callable[..., str]
KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER))
_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """How to reach a server that lives as long as the test run: a process of its own."""
    # How often tables may be made is a bound of its own: test_table_throttle.py.
    with serving(tmp_path_factory.mktemp("server"), "--table-operations-per-s", "0") as ready:
        yield ready


@pytest.fixture(scope="session", autouse=True)
def signature() -> Iterator[None]:
    """Have every client of the tests sign with the chosen version of the signature."""
    with pytest.MonkeyPatch.context() as patch:
        if SIGNATURE == "v4":
            patch.setattr("rowtide.cli.client.sign_headers", headers_v4)
        yield


@pytest.fixture(scope="session")
def client(server: Ready) -> Iterator[ProtocolClient]:
    """One connection, signed, that sends exactly the messages it is given."""
    with ProtocolClient(**server._asdict()) as connected:
        yield connected


@pytest.fixture(scope="module")
def make_table(client: ProtocolClient) -> Iterator[MakeTable]:
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
