"""A server's endpoint for an event loop: connections, time-outs and retries.

Any number of requests may run at once; each uses a connection of its own. A request that the server
reports as not applied is retried for up to ``patience_s``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Self, TypeVar

from google.protobuf.message import Message

from rowtide.client.answer_failure import failure_of_answer
from rowtide.client.connection_pool import ConnectionPool, OpenConnection
from rowtide.client.failures import without_answer
from rowtide.client.http_exchange import (
    RECEIVE_BYTES,
    Access,
    AnswerParser,
    HttpAnswer,
    parse_address,
    request_bytes,
)
from rowtide.client.retries import Retries
from rowtide.core.protocol.operations import is_read_only

__all__ = ["Endpoint"]

Answer = TypeVar("Answer", bound=Message)


class Endpoint:
    """Calls an instance with a key pair. Belongs to one event loop. Close it when done.

    A request that the server reports as not applied is retried for up to ``patience_s``, for
    example while a shard moves to another worker. A refused connection is raised at once.
    ``pool`` is of the same server. Endpoints of other keys may share it; its owner closes it.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        instance: str,
        access_key_id: str,
        access_key_secret: str,
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
        pool: ConnectionPool | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._access = Access(instance, access_key_id, access_key_secret)
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._owns_pool = pool is None
        self._pool = pool or ConnectionPool(parse_address(endpoint), timeout_s=timeout_s)
        self.answered_us = 0
        """The server's time of the last answer in Unix microseconds; 0 before the first."""
        self.changed = False
        """True once a call succeeded that may have changed something."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections, unless the pool is shared."""
        if self._owns_pool:
            self._pool.close()

    async def call(self, operation: str, request: Message, answer: type[Answer]) -> Answer:
        """Send one request and return its parsed answer.

        Raises the server's error, ``Unavailable`` if nothing was sent, and ``OutcomeUnknown`` if no
        answer came.
        """
        return answer.FromString(await self.ask(operation, request.SerializeToString()))

    async def ask(
        self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None = None
    ) -> bytes:
        """Send a request's bytes and return the answer's bytes. Raises what ``call`` raises.

        ``more`` are further ``x-ots-`` headers.
        """
        return (await self.exchange(operation, body, more)).content

    async def exchange(
        self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None = None
    ) -> HttpAnswer:
        """Return the whole answer of which ``ask`` returns the content."""
        retries = Retries(self._patience_s, time.monotonic())
        is_redated = False
        while True:
            dated = self._pool.clock.now()
            answer = await self.send(operation, body, more)
            self._pool.clock.learn(answer.server_us)
            if answer.status == 200:
                self.changed = self.changed or not is_read_only(operation)
                return answer
            failure = failure_of_answer(answer)
            is_misdated = not is_redated and self._pool.clock.has_moved_since(dated)
            if failure.code == "OTSAuthFailed" and is_misdated:
                is_redated = True  # It was refused for its date, so nothing was done.
                continue
            pause_s = retries.pause_s(failure, time.monotonic())
            if pause_s is None:
                raise failure
            await asyncio.sleep(pause_s)

    async def send(
        self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None
    ) -> HttpAnswer:
        """Send a request once and return its answer, also an error.

        Raises ``Unavailable`` if nothing was sent, ``OutcomeUnknown`` if no answer came.
        """
        connection = await self._pool.take()
        request = request_bytes(
            self._pool.address, self._access, operation, body, self._pool.clock.now(), more
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await _exchange(connection, request)
        except (OSError, ValueError, TimeoutError) as error:
            connection.writer.transport.abort()
            raise without_answer(self.endpoint, error) from error
        except BaseException:
            # Cancelled: the next request on this connection would receive this answer.
            connection.writer.transport.abort()
            raise
        self.answered_us = answer.server_us or self.answered_us
        if answer.keep:
            self._pool.give_back(connection)
        else:
            connection.writer.close()
        return answer


async def _exchange(connection: OpenConnection, request: bytes) -> HttpAnswer:
    """Send a request and return its answer. Raises ``BrokenAnswer`` and ``OSError``."""
    connection.writer.write(request)
    parser = AnswerParser()
    while True:
        answer = parser.feed(await connection.reader.read(RECEIVE_BYTES))
        if answer is not None:
            return answer
