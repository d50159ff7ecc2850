"""A server with its console, and what tests of feeds do to its tables."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from rowtide.client import Client
from tests.console.feed.feed_client import FeedClient
from tests.support.consoles import RunningConsole, Visitor, serving_console

__all__ = ["console", "followed", "visitor"]

_numbers = count(1)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningConsole]:
    """A server with a console, for all tests of a module."""
    options = ("--table-operations-per-s", "0")
    with serving_console(tmp_path_factory.mktemp("console"), *options) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(console: RunningConsole) -> Visitor:
    """A person who has logged in."""
    return console.log_in()


class Followed:
    """A table with a stream, and what follows it."""

    def __init__(self, console: RunningConsole, visitor: Visitor, client: Client) -> None:
        self.console = console
        self.client = client
        self.name = f"t{next(_numbers)}"
        cookies = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        self.headers = {"Cookie": cookies}
        self.path = f"/stream/{console.ready.instance}/{self.name}"

    def create(self, **options: Any) -> None:
        """Create the table with the key ``k``."""
        self.client.create_table(self.name, {"k": str}, **{"stream_hours": 24, **options})

    def put(self, key: str, **columns: Any) -> None:
        """Write a row."""
        self.client.put(self.name, {"k": key, **columns})

    def follow(self, **parameters: str) -> FeedClient:
        """Return a follower that is not connected yet."""
        return FeedClient(self.path, headers=self.headers, **parameters)

    @property
    def url(self) -> str:
        """Address of the console."""
        return self.console.url


@pytest.fixture
def followed(console: RunningConsole, visitor: Visitor) -> Iterator[Followed]:
    """A table that a test creates, and the person who follows it."""
    with Client(**console.ready._asdict()) as client:
        yield Followed(console, visitor, client)
