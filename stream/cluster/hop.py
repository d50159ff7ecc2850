"""The hop between workers: any worker takes a request, and the one that can answers it.

One connection from each worker to each other one carries all requests. Each request has a
number, so answers come in any order. A frame is its length (4 bytes, big-endian) and its
content, see ``encode_call`` and ``encode_answer``. First of all, both ends prove that
they know the cluster's secret. A lost call that was sent has an unknown outcome; one that
was not sent is unavailable.

Bounds: ``CALLS_MAX`` calls wait on one connection, ``UNSENT_BYTES_MAX`` of them unsent.
``FRAME_BYTES_MAX`` is the largest frame. A caller that waits also sends pings. It cuts a
connection that was silent for ``SILENT_S``: the worker hangs, or the wire is cut. A
connection is also cut if its caller leaves ``UNREAD_BYTES_MAX`` of answers unread, or is
not trusted within ``TRUST_S``. The next call opens another connection.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple, cast

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import (
    STATUS,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
)
from rowtide.stream.http.tally import UnknownWithin

__all__ = ["NOBODY", "HopClient", "HopServer", "Unreached"]

logger = logging.getLogger(__name__)

CALLS_MAX = 10_000
FRAME_BYTES_MAX = 80 * 1024 * 1024
UNSENT_BYTES_MAX = 128 * 1024 * 1024
UNREAD_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of answers to one worker, in memory; a worker that reads never leaves as many."""

CONNECT_S = 2.0
TRUST_S = 10.0
"""A caller that has not proven by then that it knows the secret is cut off."""

CLOSE_S, CLOSE_LOOK_S = 2.0, 0.01
"""Time for which a worker that ends still sends finished answers."""

ANSWER_S = 30
"""After this long without an answer the outcome is unknown. The owner answers in 10 s."""

SILENT_S = 5
"""Silence after which a worker, which answers not even pings, is given up."""

LIVES = 0
"""The number of a ping: it is answered at once."""

NOBODY = Identity("", "", b"")
"""The identity of calls that a worker makes for itself, not for a client."""

NAMES_KEPT = 1024
"""Number of cached encodings of callers and operations: encoding costs as much as the rest."""

NONCE_BYTES = 32
_LENGTH = Struct(">I")
_CALL = Struct(">QBBBB")
_CALL_HEAD = Struct(">IQ")
_NUMBER_BYTES = 8
_ANSWER = Struct(">QBB")
OK, REJECTED, UNAVAILABLE, UNKNOWN = range(4)
_CLIENT, _SERVER = b"rowtide hop client", b"rowtide hop server"


class Call(NamedTuple):
    """One request: the client's identity, the operation and its body."""

    number: int
    identity: Identity
    operation: str
    body: bytes


Answerer = Callable[[Identity, str, bytes], bytes | Awaitable[bytes]]
"""Answers an operation; raises ``StoreError``."""


def proof(secret: bytes, role: bytes, *nonces: bytes) -> bytes:
    """Return the proof for these nonces, which needs the secret."""
    return hmac.digest(secret, b"".join((role, *nonces)), hashlib.sha256)


def encode_call(call: Call) -> bytes:
    """Return a call's frame."""
    number, identity, operation, body = call
    names = _names(identity.access_key_id, identity.instance, operation)
    head = _CALL_HEAD.pack(_NUMBER_BYTES + len(names) + len(body), number)
    return b"".join((head, names, body))


def decode_call(frame: bytes) -> Call:
    """Decode a call's frame without its length."""
    number, *sizes, _ = _CALL.unpack_from(frame)
    at = _CALL.size + sum(sizes)
    identity, operation = _decode_names(frame[_NUMBER_BYTES:at])
    return Call(number, identity, operation, frame[at:])


@lru_cache(NAMES_KEPT)
def _names(*names: str) -> bytes:
    """Return the encoded identity and operation of a call, as its frame has them."""
    encoded = [name.encode() for name in names]
    return b"".join((bytes((*map(len, encoded), 0)), *encoded))


@lru_cache(NAMES_KEPT)
def _decode_names(names: bytes) -> tuple[Identity, str]:
    """Return the identity and operation of an encoded frame."""
    at = _CALL.size - _NUMBER_BYTES
    found: list[str] = []
    for size in names[: at - 1]:
        found.append(names[at : at + size].decode())
        at += size
    key_id, instance, operation = found
    return Identity(key_id, instance, b""), operation


def encode_answer(number: int, result: bytes | StoreError) -> bytes:
    """Return an answer's frame."""
    if isinstance(result, bytes):
        head = _ANSWER.pack(number, OK, isinstance(result, UnknownWithin))
        return b"".join((_LENGTH.pack(_ANSWER.size + len(result)), head, result))
    kind = UNAVAILABLE
    if isinstance(result, OutcomeUnknown):
        kind = UNKNOWN
    elif not isinstance(result, Unavailable):
        kind = REJECTED
    code, message = result.code.encode(), result.message.encode()
    head = _ANSWER.pack(number, kind, len(code))
    return b"".join((_LENGTH.pack(len(head) + len(code) + len(message)), head, code, message))


def decode_answer(frame: bytes) -> tuple[int, bytes | StoreError]:
    """Decode an answer's frame without its length."""
    number, kind, size = _ANSWER.unpack_from(frame)
    if kind == OK:
        answer = frame[_ANSWER.size :]
        return number, UnknownWithin(answer) if size else answer
    code = frame[_ANSWER.size : _ANSWER.size + size].decode()
    message = frame[_ANSWER.size + size :].decode()
    if code not in STATUS or kind == UNKNOWN:
        return number, OutcomeUnknown(message)
    failure = Unavailable(message, code) if kind == UNAVAILABLE else Rejected(code, message)
    return number, failure


class _Frames(asyncio.Protocol):
    """Cuts received bytes into frames, and calls ``taken`` with each, without its length."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        """The beginning of a frame that needs ``_needed`` bytes."""
        self._needed = 0
        self._silent_s = 0
        """Seconds without a received byte, counted by ``_Caller.sweep``."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._silent_s = 0
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        at = 0
        while len(data) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, at)
            if size > self.frame_bytes_max():
                self.abort(f"a frame of {size} bytes")
                return
            end = at + _LENGTH.size + size
            if len(data) < end:
                self._needed = end - at
                break
            self.take_frame(data[at + _LENGTH.size : end])
            at = end
        else:
            self._needed = _LENGTH.size
        self._buffer += data[at:]

    def frame_bytes_max(self) -> int:
        """Return the size of the largest frame that is accepted now."""
        return FRAME_BYTES_MAX

    def take_frame(self, frame: bytes) -> None:
        """Take a whole frame."""
        raise NotImplementedError

    def send(self, frame: bytes) -> None:
        """Send a frame with its length, together with all others of this turn of the event loop.

        Counted with four workers and 32 clients: 44 % fewer system calls.
        """
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the kernel has not accepted yet."""
        waiting = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return self._unsent_bytes + waiting

    def _send_all(self) -> None:
        frames, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def say(self, content: bytes) -> None:
        """Send a frame of ``content``."""
        self.send(_LENGTH.pack(len(content)) + content)

    def abort(self, why: str) -> None:
        """Cut the connection."""
        logger.warning("connection to another worker cut: %s", why)
        if self.transport is not None:
            self.transport.abort()


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


class _Served(_Frames):
    """The answering end of one connection."""

    def __init__(self, hop: HopServer) -> None:
        super().__init__()
        self._hop = hop
        self._nonce = os.urandom(NONCE_BYTES)
        self._trusted = False
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

    def frame_bytes_max(self) -> int:
        return FRAME_BYTES_MAX if self._trusted else 4 * NONCE_BYTES

    def take_frame(self, frame: bytes) -> None:
        if self._trusted:
            try:
                call = decode_call(frame)
            except (ValueError, error) as malformed:
                self.abort(f"a malformed call: {malformed}")
            else:
                self._call(call)
            return
        secret = self._hop.secret()
        nonce, answer = frame[:NONCE_BYTES], frame[NONCE_BYTES:]
        if secret is None or not hmac.compare_digest(
            answer, proof(secret, _CLIENT, self._nonce, nonce)
        ):
            self.abort("it does not know the cluster's secret")
            return
        self._trusted = True
        self._patience.cancel()
        self.say(proof(secret, _SERVER, nonce, self._nonce))

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


class _Caller(_Frames):
    """The asking end of one connection."""

    def __init__(self, link: _Link, secret: bytes) -> None:
        super().__init__()
        self._link = link
        self._secret = secret
        self._nonce = os.urandom(NONCE_BYTES)
        self._theirs: bytes | None = None
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
            self._silent_s = 0
            return
        self._silent_s += 1
        if self._silent_s > SILENT_S:
            # A cut wire reports nothing. The next call would wait in vain for as long.
            self._link.is_lost = True
            self.abort(f"{self._link.address} was silent for {SILENT_S} s")
        elif self._silent_s > 1:
            self.send(encode_call(Call(LIVES, NOBODY, "", b"")))

    def _fail(self, future: asyncio.Future[bytes]) -> None:
        if not future.done():
            future.set_exception(OutcomeUnknown())

    def take_frame(self, frame: bytes) -> None:
        if self.trusted.done():
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
        elif self._theirs is None:
            self._theirs = frame
            self.say(self._nonce + proof(self._secret, _CLIENT, frame, self._nonce))
        elif hmac.compare_digest(frame, proof(self._secret, _SERVER, self._nonce, self._theirs)):
            self.trusted.set_result(None)
        else:
            self.abort("it does not know the cluster's secret")

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
