"""A server's endpoint for threads: connections, time-outs and retries.

Any number of threads may share it; each request uses a connection of its own. ``endpoint.py`` has
the counterpart for an event loop.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TypeVar

from google.protobuf.message import Message

from rowtide.client.answer_failure import failure_of_answer
from rowtide.client.failures import no_connection, without_answer
from rowtide.client.http_exchange import (
    IDLE_S_MAX,
    RECEIVE_BYTES,
    Access,
    AnswerParser,
    HttpAnswer,
    parse_address,
    request_bytes,
)
from rowtide.client.retries import Retries
from rowtide.core.protocol.operations import is_read_only

if TYPE_CHECKING:
    from rowtide.client.endpoint import Endpoint

__all__ = ["BlockingEndpoint"]

Answer = TypeVar("Answer", bound=Message)

# Windows has no poll(), and its select() takes any socket. On other systems select() fails for file
# descriptors above 1,023.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class BlockingEndpoint:
    """Calls an instance with a key pair. Close it when done.

    A request that the server reports as not applied is retried for up to ``patience_s``.
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
    ) -> None:
        self.endpoint = endpoint
        self.access = Access(instance, access_key_id, access_key_secret)
        self._address = parse_address(endpoint)
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        # Append and pop are atomic, so threads need no lock. The connection used last is taken
        # first.
        self._idle: deque[tuple[float, socket.socket]] = deque()
        self.changed = False
        """True once a call succeeded that may have changed something."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; the next call opens a new one."""
        while self._idle:
            self._idle.pop()[1].close()

    def for_a_loop(self) -> Endpoint:
        """Return an endpoint of the same server for an event loop. It does not retry."""
        from rowtide.client.endpoint import Endpoint  # Imports asyncio, which takes a while.

        instance, key_id, secret = self.access
        return Endpoint(
            self.endpoint,
            instance=instance,
            access_key_id=key_id,
            access_key_secret=secret,
            timeout_s=self._timeout_s,
        )

    def call(self, operation: str, request: Message, answer: type[Answer]) -> Answer:
        """Send one request and return its parsed answer.

        Raises the server's error, ``Unavailable`` if nothing was sent, and ``OutcomeUnknown`` if no
        answer came.
        """
        return answer.FromString(self.ask(operation, request.SerializeToString()))

    def ask(self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None = None) -> bytes:
        """Send a request's bytes and return the answer's bytes. Raises what ``call`` raises.

        ``more`` are further ``x-ots-`` headers.
        """
        return self.exchange(operation, body, more).content

    def exchange(
        self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None = None
    ) -> HttpAnswer:
        """Return the whole answer of which ``ask`` returns the content."""
        retries = Retries(self._patience_s, time.monotonic())
        while True:
            answer = self.send(operation, body, more)
            if answer.status == 200:
                self.changed = self.changed or not is_read_only(operation)
                return answer
            failure = failure_of_answer(answer)
            pause_s = retries.pause_s(failure, time.monotonic())
            if pause_s is None:
                raise failure
            time.sleep(pause_s)

    def send(self, operation: str, body: bytes, more: Mapping[bytes, bytes] | None) -> HttpAnswer:
        """Send a request once and return its answer, also an error.

        Raises ``Unavailable`` if nothing was sent, ``OutcomeUnknown`` if no answer came.
        """
        connection = self._take() or self._open()
        request = request_bytes(
            self._address, self.access, operation, body, datetime.now(UTC), more
        )
        try:
            answer = _exchange(connection, request, time.monotonic() + self._timeout_s)
        except (OSError, ValueError) as error:
            connection.close()
            raise without_answer(self.endpoint, error) from error
        except BaseException:
            # Interrupted: the next request on this connection would receive this answer.
            connection.close()
            raise
        if answer.keep:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.close()
        return answer

    def _take(self) -> socket.socket | None:
        while self._idle:
            try:
                used_s, connection = self._idle.pop()
            except IndexError:
                return None  # Another thread was faster.
            if time.monotonic() - used_s < IDLE_S_MAX and _is_silent(connection):
                return connection
            connection.close()
        return None

    def _open(self) -> socket.socket:
        host, port = self._address.host, self._address.port
        try:
            connection = socket.create_connection((host, port), timeout=self._timeout_s)
        except OSError as error:
            raise no_connection(self.endpoint, error) from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return _wrap_tls(connection, host) if self._address.is_tls else connection
        except OSError as error:
            connection.close()
            raise no_connection(self.endpoint, error) from error
        except BaseException:
            connection.close()
            raise


def _is_silent(connection: socket.socket) -> bool:
    """True if nothing was received on an idle connection. Only its closing could be."""
    with _Selector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return not selector.select(0)


def _wrap_tls(connection: socket.socket, host: str) -> socket.socket:
    import ssl  # The import takes a while, and most developers' servers use plain HTTP.

    return ssl.create_default_context().wrap_socket(connection, server_hostname=host)


def _exchange(connection: socket.socket, request: bytes, until_s: float) -> HttpAnswer:
    """Send a request and return its answer. Raises ``BrokenAnswer`` and ``OSError``."""
    _limit(connection, until_s)
    connection.sendall(request)
    parser = AnswerParser()
    while True:
        _limit(connection, until_s)
        answer = parser.feed(connection.recv(RECEIVE_BYTES))
        if answer is not None:
            return answer


def _limit(connection: socket.socket, until_s: float) -> None:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left_s)
