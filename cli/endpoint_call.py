"""Calls of the asynchronous modules from a command: one event loop, one endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rowtide.cli.client import NoAnswer, NotConnected, ProtocolClient, ServerError
from rowtide.client.endpoint import Endpoint
from rowtide.core.values.errors import STATUS, OutcomeUnknown, StoreError, Unavailable

__all__ = ["PATIENCE_S", "client_failure", "endpoint_of", "run_call"]

PATIENCE_S = 10.0
"""A shard moves to another worker within 2 s, also if its worker was killed."""

Answer = TypeVar("Answer")


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

    async def call() -> Answer:
        async with endpoint_of(client, patience_s=PATIENCE_S) as endpoint:
            try:
                return await ask(endpoint)
            finally:
                client.changed = client.changed or endpoint.changed

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
