"""The answering end of the hop between workers: any worker takes a request of any other.

One connection from each worker to each other one carries all requests (``hop_frames.py``). Each
request has a number, so answers come in any order. A connection is cut if its caller leaves
``UNREAD_BYTES_MAX`` of answers unread, or has not proven within ``TRUST_S`` that it knows the
cluster's secret.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from struct import error
from typing import Any, cast

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.cluster.hop_frames import (
    CLIENT,
    FRAME_BYTES_MAX,
    LIVES,
    NONCE_BYTES,
    SERVER,
    Call,
    Frames,
    decode_call,
    encode_answer,
    proof,
)

__all__ = ["Answerer", "HopServer"]

logger = logging.getLogger(__name__)

UNREAD_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of answers to one worker, in memory; a worker that reads never leaves as many."""

STRANGER_BYTES_MAX = 4 * NONCE_BYTES
"""The largest frame of a caller that has proven nothing yet."""

TRUST_S = 10.0
"""A caller that has not proven by then that it knows the secret is cut off."""

CLOSE_S, CLOSE_LOOK_S = 2.0, 0.01
"""Time for which a worker that ends still sends finished answers."""

Answerer = Callable[[Identity, str, bytes], bytes | Awaitable[bytes]]
"""Answers an operation; raises ``StoreError``."""


class HopServer:
    """Answers requests that other workers forward."""

    def __init__(
        self, secret: Callable[[], bytes | None], answer: Answerer, tasks: asyncio.TaskGroup
    ) -> None:
        self.secret = secret
        self.answer = answer
        self.tasks = tasks
        self.draining = False
        """True if no new call is started."""
        self.running: set[asyncio.Future[Any]] = set()
        """The calls that are not answered yet."""
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.Transport] = set()

    async def serve_on(self, listener: socket.socket) -> None:
        """Accept workers on a socket that is already bound."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Served(self), sock=listener)

    def runs(self, call: asyncio.Future[Any]) -> None:
        """Remember a started call until it is answered."""
        self.running.add(call)
        call.add_done_callback(self.running.discard)

    async def drain(self, deadline_s: float) -> int:
        """Start no call, finish the running ones; return how many did not finish in time.

        Calls that arrive meanwhile get ``Unavailable``. In the end all connections close.
        """
        self.draining = True
        if self._server is not None:
            self._server.close()
        left: set[asyncio.Future[Any]] = set()
        if self.running:
            _, left = await asyncio.wait(self.running, timeout=deadline_s)
        await asyncio.sleep(0)  # Answers of this turn are sent in the next one.
        for transport in list(self.connections):
            transport.close()  # Once its queued bytes are sent.
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self.connections:  # noqa: ASYNC110 - They report no end.
                    await asyncio.sleep(CLOSE_LOOK_S)
        self.close()
        return len(left)

    def close(self) -> None:
        """Stop accepting, and cut all connections."""
        if self._server is not None:
            self._server.close()
        for transport in list(self.connections):
            transport.abort()


class _Served(Frames):
    """The answering end of one connection."""

    def __init__(self, hop: HopServer) -> None:
        super().__init__()
        self._hop = hop
        self.frame_bytes_max = STRANGER_BYTES_MAX
        self.take_frame = self._take_proof
        self._nonce = os.urandom(NONCE_BYTES)
        self._patience = asyncio.get_running_loop().call_later(TRUST_S, self._cut_stranger)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._hop.connections.add(cast(asyncio.Transport, transport))
        self.say(self._nonce)

    def _cut_stranger(self) -> None:
        self.abort(f"it has not proven in {TRUST_S:.0f} s that it knows the cluster's secret")

    def connection_lost(self, exc: Exception | None) -> None:
        self._patience.cancel()
        if self.transport is not None:
            self._hop.connections.discard(self.transport)
        self.transport = None

    def _send_all(self) -> None:
        super()._send_all()
        if self.unsent_bytes > UNREAD_BYTES_MAX:
            self.abort(f"{self.unsent_bytes} bytes of answers are not read")

    # The two states of a connection: what its next frame is taken for.

    def _take_proof(self, frame: bytes) -> None:
        secret = self._hop.secret()
        nonce, answer = frame[:NONCE_BYTES], frame[NONCE_BYTES:]
        if secret is None or not hmac.compare_digest(
            answer, proof(secret, CLIENT, self._nonce, nonce)
        ):
            self.abort("it does not know the cluster's secret")
            return
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.take_frame = self._take_call
        self._patience.cancel()
        self.say(proof(secret, SERVER, nonce, self._nonce))

    def _take_call(self, frame: bytes) -> None:
        try:
            call = decode_call(frame)
        except (ValueError, error) as malformed:
            self.abort(f"a malformed call: {malformed}")
        else:
            self._call(call)

    def _call(self, call: Call) -> None:
        if call.number == LIVES:
            self.send(encode_answer(LIVES, b""))
            return
        if self._hop.draining:
            self.send(encode_answer(call.number, Unavailable()))
            return
        try:
            result = self._hop.answer(call.identity, call.operation, call.body)
        except Exception as failure:  # noqa: BLE001 - Sent to the caller; logged in _to_error.
            self.send(encode_answer(call.number, _to_error(failure)))
            return
        if isinstance(result, bytes):
            self.send(encode_answer(call.number, result))
        elif isinstance(result, asyncio.Future):
            result.add_done_callback(lambda done: self._send_outcome(call.number, done))
            self._hop.runs(result)
        else:
            name = f"hop[{call.operation}]"
            running = self._run(call.number, result)
            try:
                self._hop.runs(self._hop.tasks.create_task(running, name=name))
            except RuntimeError:  # The worker ends: nothing was started.
                running.close()
                self.send(encode_answer(call.number, Unavailable()))

    def _send_outcome(self, number: int, done: asyncio.Future[bytes]) -> None:
        if done.cancelled():
            self.send(encode_answer(number, OutcomeUnknown()))
        elif (failure := done.exception()) is not None:
            self.send(encode_answer(number, _to_error(failure)))
        else:
            self.send(encode_answer(number, done.result()))

    async def _run(self, number: int, awaitable: Awaitable[bytes]) -> None:
        try:
            result: bytes | StoreError = await awaitable
        except Exception as failure:  # noqa: BLE001 - Sent to the caller; logged in _to_error.
            result = _to_error(failure)
        self.send(encode_answer(number, result))


def _to_error(failure: BaseException) -> StoreError:
    """Return the error that the calling worker gets for a failure."""
    if isinstance(failure, StoreError):
        return failure
    # The caller logs the answer with its request's id: the number joins both logs.
    number = secrets.token_hex(4)
    logger.error("fault %s: a request from another worker failed", number, exc_info=failure)
    return OutcomeUnknown(f"Internal server error (fault {number}).")
