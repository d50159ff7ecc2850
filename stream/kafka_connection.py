"""Connections to brokers: opened, lent to one caller at a time, and dropped without a flush.

A broker answers the requests of one connection in order, so a connection that waits (a long
poll, an append that replicates) would hold up whatever is sent behind it. Here each is lent
exclusively: requests never queue behind each other, and there are as many connections to a
broker as requests were ever under way at once.

Invariant: a connection goes back to the pool only when every request sent on it was answered.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import KafkaError

from rowtide.stream.kafka_config import KafkaConfig, Security

__all__ = ["Address", "Connections", "NotConnected", "drop"]

Address = tuple[str, int]
IDLE_S_MAX = 240.0
"""Below the broker's own limit of 600 s, so that it is always we who close an idle connection: one
that the broker closes under a request would make that request's outcome unknown."""


class NotConnected(Exception):
    """No connection could be opened, so nothing was sent."""


class Connections:
    """Idle connections by broker address, the most recently used last."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._tls = tls_context(config.security)
        self._idle: defaultdict[Address, list[Any]] = defaultdict(list)
        self._closed = False

    @asynccontextmanager
    async def lent(self, address: Address) -> AsyncIterator[Any]:
        """Lend a connection. One that leaves by an exception is dropped, not returned."""
        connection = self._take(address) or await self._open(address)
        try:
            yield connection
        except BaseException:
            # Cancellation included: a request may be unanswered, and its answer would be
            # taken for that of the next one's sender.
            drop(connection)
            raise
        self._give_back(address, connection)

    def close(self) -> None:
        """Drop every idle connection; those that are lent are dropped when they come back."""
        self._closed = True
        self.drop_idle()

    def drop_idle(self) -> None:
        """Drop every connection that is not lent; the next request opens one."""
        for connections in self._idle.values():
            for connection in connections:
                drop(connection)
        self._idle.clear()

    def _take(self, address: Address) -> Any | None:
        idle = self._idle[address]
        while idle:
            connection = idle.pop()
            if connection.connected():
                return connection
            drop(connection)
        return None

    def _give_back(self, address: Address, connection: Any) -> None:
        if self._closed or not connection.connected():
            drop(connection)
        else:
            self._idle[address].append(connection)

    async def _open(self, address: Address) -> Any:
        security = self._config.security
        try:
            async with asyncio.timeout(self._config.request_s):
                return await create_conn(
                    *address,
                    client_id="rowtide",
                    # Every request has its own deadline, set where it is sent: this only has
                    # to lie above them all.
                    request_timeout_ms=int(self._config.deadline_s * 1000),
                    max_idle_ms=int(IDLE_S_MAX * 1000),
                    security_protocol=security.protocol,
                    ssl_context=self._tls,
                    sasl_mechanism=security.sasl_mechanism if security.uses_sasl else None,
                    sasl_plain_username=security.sasl_username,
                    sasl_plain_password=security.sasl_password,
                )
        except (OSError, KafkaError, TimeoutError) as error:
            host, port = address
            raise NotConnected(f"broker {host}:{port}: {error or type(error).__name__}") from error


def drop(connection: AIOKafkaConnection) -> None:
    """Close at once. What lies in the send buffer is thrown away, whoever waits is woken."""
    if connection._writer is not None:
        # close() alone would first send what is buffered, for as long as the broker takes.
        connection._writer.transport.abort()
    connection.close()


def tls_context(security: Security) -> ssl.SSLContext | None:
    """Return the TLS settings, or None where the protocol has none."""
    if not security.uses_tls:
        return None
    context = ssl.create_default_context(cafile=security.cafile)
    if security.certfile:
        context.load_cert_chain(security.certfile, security.keyfile)
    return context
