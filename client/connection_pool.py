"""Open connections to one server, which requests of any key and instance may share.

A connection serves one request at a time. It is kept for the next one while it is fresh: the server
closes idle connections, and a request that is sent on a closing one has an unknown outcome.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from typing import NamedTuple

from rowtide.client.failures import no_connection
from rowtide.client.http_exchange import IDLE_S_MAX, RECEIVE_BYTES, Address
from rowtide.client.server_clock import ServerClock

__all__ = ["ConnectionPool", "OpenConnection"]

IDLE_MAX = 128
"""Idle connections that are kept; further ones are closed."""


class OpenConnection(NamedTuple):
    """The two directions of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def is_usable(self) -> bool:
        """True unless one of the two sides has closed it."""
        return not self.writer.is_closing() and not self.reader.at_eof()


class ConnectionPool:
    """The connections to the server at ``address``. Belongs to one event loop.

    ``timeout_s`` bounds the wait for a new connection. Idle connections are used again for
    ``IDLE_S_MAX`` seconds, the last one first. ``clock`` dates the requests on them.
    """

    def __init__(
        self, address: Address, *, timeout_s: float, clock: ServerClock | None = None
    ) -> None:
        self.address = address
        self.clock = clock or ServerClock()
        self._tls = ssl.create_default_context() if address.is_tls else None
        self._timeout_s = timeout_s
        self._idle: deque[tuple[float, OpenConnection]] = deque()

    async def take(self) -> OpenConnection:
        """Return a connection that nobody uses. Raises ``Unavailable`` if none can be opened."""
        self._close_old()
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.writer.close()
        return await self._open()

    def give_back(self, connection: OpenConnection) -> None:
        """Keep a connection whose answer has been read to its end."""
        self._idle.append((time.monotonic(), connection))
        self._close_old()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop()[1].writer.close()

    def _close_old(self) -> None:
        now_s = time.monotonic()
        while self._idle and (len(self._idle) > IDLE_MAX or now_s - self._idle[0][0] >= IDLE_S_MAX):
            self._idle.popleft()[1].writer.close()

    async def _open(self) -> OpenConnection:
        host, port = self.address.host, self.address.port
        try:
            async with asyncio.timeout(self._timeout_s):
                opened = await asyncio.open_connection(
                    host, port, ssl=self._tls, limit=RECEIVE_BYTES
                )
        except (OSError, TimeoutError) as error:
            raise no_connection(self.address.url, error) from error
        return OpenConnection(*opened)
