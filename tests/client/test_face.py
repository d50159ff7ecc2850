"""The public names: both forms say the same, and a mock can be what the protocols ask for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import rowtide.client
from rowtide.client import AsyncClient, AsyncRowClient, Client, RowClient
from rowtide.client.async_transaction import AsyncLocalTransaction
from rowtide.client.changes.feed import AsyncChangeFeed
from rowtide.client.changes.thread_feed import ChangeFeed
from rowtide.client.sync_transaction import LocalTransaction

OTHER = {
    "Iterator": "AsyncIterator",
    "LocalTransaction": "AsyncLocalTransaction",
    "ChangeFeed": "AsyncChangeFeed",
}


def methods(kind: type) -> dict[str, Any]:
    """Return the public methods of a class."""
    return {
        name: member
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }


def shape(function: Any) -> tuple[list[tuple[Any, ...]], str]:
    """Return what a caller sees: parameters and result."""
    signature = inspect.signature(function)
    parameters = [(p.name, p.kind, p.default, p.annotation) for p in signature.parameters.values()]
    return parameters, str(signature.return_annotation)


@pytest.mark.parametrize(
    ("plain", "asynchronous"),
    [
        (Client, AsyncClient),
        (LocalTransaction, AsyncLocalTransaction),
        (RowClient, AsyncRowClient),
    ],
)
def test_both_forms_have_the_same_calls(plain: type, asynchronous: type) -> None:
    ours, theirs = methods(plain), methods(asynchronous)
    if plain is Client:  # The others are not made by an application.
        assert shape(AsyncClient.__init__) == shape(Client.__init__)
    assert list(ours) == list(theirs)
    for name, function in ours.items():
        parameters, result = shape(function)
        kind, _, rest = result.partition("[")
        expected = "[".join(filter(None, [OTHER.get(kind, kind), rest]))
        assert shape(theirs[name]) == (parameters, expected), name


@pytest.mark.parametrize(
    ("client", "protocol"), [(Client, RowClient), (AsyncClient, AsyncRowClient)]
)
def test_a_client_is_what_its_protocol_says(client: type, protocol: type) -> None:
    ours = methods(client)
    assert {name: shape(ours[name]) for name in methods(protocol)} == {
        name: shape(function) for name, function in methods(protocol).items()
    }


def test_the_feeds_have_the_same_calls() -> None:
    assert {"batches", "stop"} <= methods(ChangeFeed).keys() & methods(AsyncChangeFeed).keys()


def test_every_public_name_has_its_home() -> None:
    homes = {name for names in rowtide.client._HOMES.values() for name in names}
    assert sorted(homes) == sorted(rowtide.client.__all__)
    for name in rowtide.client.__all__:
        assert getattr(rowtide.client, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = rowtide.client.Nothing  # type: ignore[attr-defined]


def test_the_plain_form_waits_for_no_event_loop() -> None:
    program = "import sys; from rowtide.client import Client, column; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert {"asyncio", "ssl", "http.client"} & set(done.stdout.split()) == set()


class Notebook:
    """A part of an application; it takes whatever is a ``RowClient``."""

    def __init__(self, rows: RowClient) -> None:
        self._rows = rows

    def title(self, user: str) -> str:
        row = self._rows.get("notes", {"user": user})
        return "nothing yet" if row is None else str(row["title"])


class OneRow:
    """A fake of an application's tests: what it does not use need not be there at run time."""

    def get(self, table: str, key: Any, **_: Any) -> dict[str, Any] | None:
        return {"user": "ada", "title": "Notes"} if key == {"user": "ada"} else None


def test_an_application_mocks_what_it_uses() -> None:
    notebook = Notebook(OneRow())  # type: ignore[arg-type]
    assert (notebook.title("ada"), notebook.title("bob")) == ("Notes", "nothing yet")
