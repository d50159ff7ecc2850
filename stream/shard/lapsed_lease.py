"""The error of a strong read under a lapsed lease, and the request's wait for the renewal.

A process that was starved of CPU finds its leases lapsed. Its next renewal shows within
moments if another worker has claimed the slot. A renewal that is valid at its offset
proves that none has. So a request waits for that renewal instead of failing at once. The
request was not applied, and starts again: a read never continues from rows that it read
under a lapsed lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import Unavailable

__all__ = ["LeaseLapsed", "trying_again"]

TRIES_MAX = 5
"""A long request may meet a lapsed lease several times on a starved machine; then it fails."""

Handler = Callable[[Identity, bytes], Awaitable[bytes] | bytes]


class LeaseLapsed(Unavailable):
    """Not applied: the slot's lease lapsed a moment ago, and this worker still tries to renew it.

    ``renewed`` returns once the lease holds again, or waiting is pointless.
    """

    def __init__(self, renewed: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.renewed = renewed


def trying_again(handler: Handler) -> Handler:
    """Return a handler that waits for the renewal of a lapsed lease, and retries."""

    def handle(identity: Identity, body: bytes) -> Awaitable[bytes] | bytes:
        try:
            result = handler(identity, body)
        except LeaseLapsed as lapsed:
            return _again(handler, identity, body, lapsed)
        if isinstance(result, (bytes, asyncio.Future)):
            return result
        return _wait_for(result, handler, identity, body)

    return handle


async def _wait_for(
    result: Awaitable[bytes], handler: Handler, identity: Identity, body: bytes
) -> bytes:
    try:
        return await result
    except LeaseLapsed as error:
        lapsed = error
    return await _again(handler, identity, body, lapsed)


async def _again(handler: Handler, identity: Identity, body: bytes, lapsed: LeaseLapsed) -> bytes:
    for _ in range(TRIES_MAX):
        await lapsed.renewed()
        try:
            result = handler(identity, body)
            return result if isinstance(result, bytes) else await result
        except LeaseLapsed as error:
            lapsed = error
    raise lapsed
