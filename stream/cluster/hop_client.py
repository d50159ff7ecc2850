"""The asking end of the hop between workers: calls that another worker can answer.

A lost call that was sent has an unknown outcome; one that was not sent is unavailable. At most
``CALLS_MAX`` calls wait on one connection, ``UNSENT_BYTES_MAX`` of them unsent. A caller that waits
also sends pings. It cuts a connection that was silent for ``SILENT_S``: the worker hangs, or the
wire is cut. The next call opens another connection.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from struct import error

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.cluster.hop_frames import (
    CLIENT,
    LIVES,
    NOBODY,
    NONCE_BYTES,
    SERVER,
    Call,
    Frames,
    decode_answer,
    encode_call,
    proof,
)

__all__ = ["HopClient", "Unreached"]

CALLS_MAX = 10_000
UNSENT_BYTES_MAX = 128 * 1024 * 1024
CONNECT_S = 2.0

ANSWER_S = 30
"""After this long without an answer the outcome is unknown. The owner answers in 10 s."""

SILENT_S = 5
"""Silence after which a worker, which answers not even pings, is given up."""


class Unreached(Unavailable):
    """A worker was not called: it cannot be reached, or does not know the cluster's secret."""


class HopClient:
    """Calls other workers. ``secret`` returns the cluster's, None while it is not known."""

    def __init__(self, secret: Callable[[], bytes | None]) -> None:
        self._secret = secret
        self._links: dict[str, _Link] = {}

    async def call(self, address: str, identity: Identity, operation: str, body: bytes) -> bytes:
        """Send an operation to the worker at ``address`` (HOST:PORT); return its answer.

        Raises its error, ``Unreached`` if it was never called, or ``OutcomeUnknown`` if
        it was called and no answer came.
        """
        return await self.ask(address, identity, operation, body)

    def ask(
        self, address: str, identity: Identity, operation: str, body: bytes
    ) -> Awaitable[bytes]:
        """Do the same; return a future, without a task, if the worker is connected."""
        link = self._links.get(address)
        if link is None or link.is_lost:
            link = self._links[address] = _Link(address)
        if link.caller is not None:
            return link.caller.ask(identity, operation, body)
        return link.first_call(self._secret, identity, operation, body)

    def close(self) -> None:
        """Cut every connection."""
        for link in self._links.values():
            link.close()


class _Link:
    """The connection to one worker; a lost one is not used again."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_lost = False
        self.caller: _Caller | None = None
        """The connection, once both ends trust each other."""
        self._opening = asyncio.Lock()

    async def first_call(
        self,
        secret: Callable[[], bytes | None],
        identity: Identity,
        operation: str,
        body: bytes,
    ) -> bytes:
        """Connect, unless another call just did, and call."""
        async with self._opening:
            caller = self.caller or await self._open(secret())
        return await caller.ask(identity, operation, body)

    async def _open(self, secret: bytes | None) -> _Caller:
        if self.is_lost or secret is None:
            raise Unreached
        host, _, port = self.address.rpartition(":")
        loop = asyncio.get_running_loop()
        caller = _Caller(self, secret)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(lambda: caller, host.strip("[]"), int(port))
                await caller.trusted
        except (OSError, TimeoutError, Unavailable) as failure:
            self.is_lost = True
            caller.close()
            raise Unreached from failure
        except asyncio.CancelledError:
            caller.given_up = True
            caller.trusted.cancel()
            caller.close()
            raise
        self.caller = caller
        caller.sweep()
        return caller

    def close(self) -> None:
        """Cut the connection."""
        self.is_lost = True
        if self.caller is not None:
            self.caller.close()


class _Caller(Frames):
    """The asking end of one connection."""

    def __init__(self, link: _Link, secret: bytes) -> None:
        super().__init__()
        self._link = link
        self._secret = secret
        self._nonce = os.urandom(NONCE_BYTES)
        self.take_frame = self._take_nonce
        self._loop = asyncio.get_running_loop()
        self.trusted: asyncio.Future[None] = self._loop.create_future()
        self.given_up = False
        """True if its creator stopped waiting: the link creates another one."""
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        """The waiting future of each call, in the calls' order."""
        self._number = 0
        self._sent: deque[int] = deque(maxlen=ANSWER_S + 1)
        """Number of calls that had been sent at each of the last sweeps."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._unsent_before = 0
        """Bytes that the kernel had not accepted yet at the last sweep."""

    def ask(self, identity: Identity, operation: str, body: bytes) -> asyncio.Future[bytes]:
        """Send a call; return its answer's future. Raises ``Unavailable``: nothing was sent."""
        if self.transport is None or self.transport.is_closing():
            raise Unreached
        if len(self._waiting) >= CALLS_MAX or self.unsent_bytes > UNSENT_BYTES_MAX:
            raise Unavailable("Server is busy.", "OTSServerBusy")
        self._number += 1
        future = self._waiting[self._number] = self._loop.create_future()
        self.send(encode_call(Call(self._number, identity, operation, body)))
        return future

    def sweep(self) -> None:
        """Expire calls once a second, so that no call needs its own timer."""
        self.expire()
        if self.transport is not None:
            self._sweeper = self._loop.call_later(1.0, self.sweep)

    def expire(self) -> None:
        """Fail calls that have waited for ``ANSWER_S`` sweeps with an unknown outcome.

        Cut the connection, and fail all calls, if the other end does not even answer pings.
        """
        self._sent.append(self._number)
        if len(self._sent) == ANSWER_S + 1:
            for number in [number for number in self._waiting if number <= self._sent[0]]:
                self._fail(self._waiting.pop(number))
        unsent, before = self.unsent_bytes, self._unsent_before
        self._unsent_before = unsent
        if not self._waiting or unsent < before:
            self.silent_s = 0
            return
        self.silent_s += 1
        if self.silent_s > SILENT_S:
            # A cut wire reports nothing. The next call would wait in vain for as long.
            self._link.is_lost = True
            self.abort(f"{self._link.address} was silent for {SILENT_S} s")
        elif self.silent_s > 1:
            self.send(encode_call(Call(LIVES, NOBODY, "", b"")))

    def _fail(self, future: asyncio.Future[bytes]) -> None:
        if not future.done():
            future.set_exception(OutcomeUnknown())

    # The three states of a connection: what its next frame is taken for.

    def _take_nonce(self, theirs: bytes) -> None:
        self.say(self._nonce + proof(self._secret, CLIENT, theirs, self._nonce))
        self.take_frame = partial(self._take_proof, theirs)

    def _take_proof(self, theirs: bytes, frame: bytes) -> None:
        if hmac.compare_digest(frame, proof(self._secret, SERVER, self._nonce, theirs)):
            self.take_frame = self._take_answer
            self.trusted.set_result(None)
        else:
            self.abort("it does not know the cluster's secret")

    def _take_answer(self, frame: bytes) -> None:
        try:
            number, result = decode_answer(frame)
        except (ValueError, error) as malformed:
            self.abort(f"a malformed answer: {malformed}")
            return
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if isinstance(result, StoreError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.given_up:
            self._link.is_lost = True
        if not self.trusted.done():
            self.trusted.set_exception(Unavailable())
        if self._sweeper is not None:
            self._sweeper.cancel()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            self._fail(future)

    def close(self) -> None:
        """Cut the connection."""
        if self.transport is not None:
            self.transport.abort()
