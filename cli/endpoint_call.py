"""Calls of the asynchronous modules from a command: one event loop, one endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from rowtide.cli.client import NoAnswer, NotConnected, ProtocolClient, ServerError
from rowtide.cli.exits import CommandRefused
from rowtide.client.endpoint import Endpoint
from rowtide.core.values.errors import STATUS, OutcomeUnknown, StoreError, Unavailable

__all__ = [
    "PATIENCE_S",
    "call_for_each",
    "client_failure",
    "endpoint_of",
    "run_call",
    "run_connected",
]

PATIENCE_S = 10.0
"""A shard moves to another worker within 2 s, also if its worker was killed."""

Answer = TypeVar("Answer")
Connected = TypeVar("Connected")


def endpoint_of(client: ProtocolClient, *, patience_s: float = 0.0) -> Endpoint:
    """Return the client's server as an endpoint for an event loop."""
    instance, key_id, secret = client.access
    return Endpoint(
        client.endpoint,
        instance=instance,
        access_key_id=key_id,
        access_key_secret=secret,
        patience_s=patience_s,
    )


def run_call(client: ProtocolClient, ask: Callable[[Endpoint], Awaitable[Answer]]) -> Answer:
    """Return the result of ``ask``. Raises failures like those of a client."""
    return run_connected(
        client, lambda: endpoint_of(client, patience_s=PATIENCE_S), lambda endpoint: endpoint, ask
    )


def call_for_each(
    client: ProtocolClient,
    what: str,
    names: Sequence[str],
    act: Callable[[Endpoint, str], Awaitable[bool]],
) -> None:
    """Call ``act`` for each name in turn. Refuse one of which it says that no such ``what`` is."""

    async def act_on_all(endpoint: Endpoint) -> None:
        for name in names:
            if not await act(endpoint, name):
                raise CommandRefused(f"There is no {what} {name}")

    run_call(client, act_on_all)


def run_connected(
    client: ProtocolClient,
    connect: Callable[[], AbstractAsyncContextManager[Connected]],
    endpoint_in: Callable[[Connected], Endpoint],
    ask: Callable[[Connected], Awaitable[Answer]],
) -> Answer:
    """Return the result of ``ask`` for what ``connect`` returns; see ``run_call``."""

    async def call() -> Answer:
        async with connect() as connected:
            try:
                return await ask(connected)
            finally:
                client.changed = client.changed or endpoint_in(connected).changed

    try:
        return asyncio.run(call())
    except StoreError as error:
        raise client_failure(error) from error


def client_failure(error: StoreError) -> Exception:
    """Return a failure as the command line's own client raises it."""
    if isinstance(error, OutcomeUnknown):
        return NoAnswer(error.message)
    if isinstance(error, Unavailable) and error.code == "OTSServerUnavailable":
        return NotConnected(error.message)
    return ServerError(error.code, error.message, STATUS.get(error.code, 0), error.request_id)
