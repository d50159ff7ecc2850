"""Both forms of the client behind one way to call them, so that one table of cases tests both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

from rowtide.client import AsyncClient, Change, Client

__all__ = ["FORMS", "Form", "Leave", "Step", "open_form"]

FORMS = ("plain", "asyncio")
Leave = Literal["break", "raise", "stop"]


class Step(NamedTuple):
    """A call within a transaction; with ``range`` its result is the list of rows."""

    name: str
    arguments: Sequence[Any] = ()
    options: Mapping[str, Any] = MappingProxyType({})


class Left(Exception):
    """Raised in a loop over changes."""


class Form(Protocol):
    """One form of the client."""

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method, and return what it returns."""
        ...

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        """Return the rows of a range."""
        ...

    def transact(self, table: str, partition: Any, *steps: Step) -> list[Any]:
        """Do steps in a transaction; return their results."""
        ...

    def take(self, count: int, leave: Leave, table: str, **options: Any) -> list[Change]:
        """Return so many changes, then leave the loop, at the last one or behind it."""
        ...


class PlainForm:
    """The form that blocks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self._client, name)(*arguments, **options)

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        return list(self._client.range(*arguments, **options))

    def transact(self, table: str, partition: Any, *steps: Step) -> list[Any]:
        found: list[Any] = []
        with self._client.transaction(table, partition) as transaction:
            for name, arguments, options in steps:
                result = getattr(transaction, name)(*arguments, **options)
                found.append(list(result) if name == "range" else result)
        return found

    def take(self, count: int, leave: Leave, table: str, **options: Any) -> list[Change]:
        found: list[Change] = []
        feed = self._client.changes(table, **options)
        with suppress(Left), feed:
            for change in feed:
                found.append(change)
                if len(found) == count:
                    if leave == "break":
                        break
                    if leave == "raise":
                        raise Left
                    feed.stop()
        return found


class LoopForm:
    """The form for an event loop; the loop runs while a call does."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def do(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self._runner.run(getattr(self._client, name)(*arguments, **options))

    def rows(self, *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        async def read() -> list[dict[str, Any]]:
            return [row async for row in self._client.range(*arguments, **options)]

        return self._runner.run(read())

    def transact(self, table: str, partition: Any, *steps: Step) -> list[Any]:
        async def run_steps() -> list[Any]:
            found: list[Any] = []
            async with self._client.transaction(table, partition) as transaction:
                for name, arguments, options in steps:
                    result = getattr(transaction, name)(*arguments, **options)
                    rows = [row async for row in result] if name == "range" else await result
                    found.append(rows)
            return found

        return self._runner.run(run_steps())

    def take(self, count: int, leave: Leave, table: str, **options: Any) -> list[Change]:
        async def take() -> list[Change]:
            found: list[Change] = []
            feed = self._client.changes(table, **options)
            with suppress(Left):
                async with feed:
                    async for change in feed:
                        found.append(change)
                        if len(found) == count:
                            if leave == "break":
                                break
                            if leave == "raise":
                                raise Left
                            feed.stop()
            return found

        return self._runner.run(take())


@contextmanager
def open_form(form: str, **access: Any) -> Iterator[Form]:
    """Yield a client of one form."""
    if form == "plain":
        with Client(**access) as client:
            yield PlainForm(client)
        return
    with asyncio.Runner() as runner:
        connected = runner.run(AsyncClient(**access).__aenter__())
        try:
            yield LoopForm(connected, runner)
        finally:
            runner.run(connected.__aexit__(None, None, None))
