"""Connections to brokers: opened, lent to one caller at a time, and dropped without a flush.

A broker answers the requests of one connection in order. So a waiting request (a long
poll, an append that replicates) would delay every request behind it. Here each connection
is lent to one caller, so requests never queue behind each other. There are as many
connections to a broker as there were requests at the same time.

Invariant: a connection returns to the pool only when every request on it was answered.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError

from rowtide.stream.log.kafka.channel import CLIENT_ID, Channel
from rowtide.stream.log.kafka.config import KafkaConfig, Security

__all__ = ["Address", "BrokerUnreachable", "Connections"]

Address = tuple[str, int]
IDLE_S_MAX = 240.0
"""Below the broker's own limit of 600 s, so that no request uses a connection that the
broker is closing: its outcome would be unknown for no reason.
"""


class BrokerUnreachable(Exception):
    """No connection could be opened, so nothing was sent."""


class Connections:
    """Idle connections by broker address, the most recently used last."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._tls = tls_context(config.security)
        self._idle: defaultdict[Address, list[Channel]] = defaultdict(list)
        self._closed = False
        self.answered_s: float | None = None
        """When a broker last answered, in seconds of ``time.monotonic``; None before."""

    @asynccontextmanager
    async def lent(self, address: Address) -> AsyncIterator[Channel]:
        """Lend a connection. After an exception it is dropped, not returned."""
        connection = self._take(address) or await self._open(address)
        try:
            yield connection
        except BaseException:
            # After a cancellation too: a request may be unanswered, and the next caller
            # would take its answer for its own.
            connection.drop()
            raise
        self.answered_s = time.monotonic()
        self._give_back(address, connection)

    def close(self) -> None:
        """Drop every idle connection; lent ones are dropped when they come back."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Drop every connection that is not lent; the next request opens one."""
        for connections in self._idle.values():
            for connection in connections:
                connection.drop()
        self._idle.clear()

    def _take(self, address: Address) -> Channel | None:
        idle = self._idle[address]
        used_after = asyncio.get_running_loop().time() - IDLE_S_MAX
        while idle:
            connection = idle.pop()
            if connection.connected and connection.used_at > used_after:
                return connection
            connection.drop()
        return None

    def _give_back(self, address: Address, connection: Channel) -> None:
        if self._closed or not connection.connected:
            connection.drop()
        else:
            self._idle[address].append(connection)

    async def _open(self, address: Address) -> Channel:
        security = self._config.security
        try:
            async with asyncio.timeout(self._config.request_s):
                connection = await create_conn(
                    *address,
                    client_id=CLIENT_ID,
                    security_protocol=security.protocol,
                    ssl_context=self._tls,
                    sasl_mechanism=security.sasl_mechanism if security.uses_sasl else None,
                    sasl_plain_username=security.sasl_username,
                    sasl_plain_password=security.sasl_password,
                )
                return Channel(connection)
        except (OSError, KafkaError, TimeoutError) as error:
            host, port = address
            why = str(error) or type(error).__name__  # A TimeoutError has no text.
            raise BrokerUnreachable(f"broker {host}:{port}: {why}") from error


def tls_context(security: Security) -> ssl.SSLContext | None:
    """Return the TLS settings, or None if the protocol uses none."""
    if not security.uses_tls:
        return None
    context = ssl.create_default_context(cafile=security.cafile)
    if security.certfile:
        context.load_cert_chain(security.certfile, security.keyfile)
    return context
