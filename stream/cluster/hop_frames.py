"""Frames on the connection between two workers: a call, its answer, and proof of the secret.

A frame is its length (4 bytes, big-endian) and its content, see ``encode_call`` and
``encode_answer``. The first frames prove that both ends know the cluster's secret: the server's
nonce; the client's nonce and proof; the server's proof. ``FRAME_BYTES_MAX`` is the largest frame.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import socket
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, cast

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import (
    STATUS,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
)
from rowtide.stream.http.tally import UnknownWithin

__all__ = [
    "CLIENT",
    "FRAME_BYTES_MAX",
    "LIVES",
    "NOBODY",
    "NONCE_BYTES",
    "SERVER",
    "Call",
    "Frames",
    "decode_answer",
    "decode_call",
    "encode_answer",
    "encode_call",
    "proof",
]

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX = 80 * 1024 * 1024

LIVES = 0
"""The number of a ping: it is answered at once."""

NOBODY = Identity("", "", b"")
"""The identity of calls that a worker makes for itself, not for a client."""

NAMES_KEPT = 1024
"""Number of cached encodings of callers and operations: encoding costs as much as the rest."""

NONCE_BYTES = 32
CLIENT, SERVER = b"rowtide hop client", b"rowtide hop server"
"""The two roles in a proof: neither end can send the other's proof back to it."""
_LENGTH = Struct(">I")
_CALL = Struct(">QBBBB")
_CALL_HEAD = Struct(">IQ")
_NUMBER_BYTES = 8
_ANSWER = Struct(">QBB")
OK, REJECTED, UNAVAILABLE, UNKNOWN = range(4)


class Call(NamedTuple):
    """One request: the client's identity, the operation and its body."""

    number: int
    identity: Identity
    operation: str
    body: bytes


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


class Frames(asyncio.Protocol):
    """Cuts received bytes into frames, and gives each, without its length, to ``take_frame``.

    ``take_frame`` is the connection's state: an end sets it when it takes frames for something
    else. A larger frame than ``frame_bytes_max`` is not accepted now.
    """

    take_frame: Callable[[bytes], None]

    def __init__(self) -> None:
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        """The beginning of a frame that needs ``_needed`` bytes."""
        self._needed = 0
        self.silent_s = 0
        """Seconds without a received byte, counted by the asking end."""
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self.silent_s = 0
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return
            data = bytes(self._buffer)
            self._buffer.clear()
        at = 0
        while len(data) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(data, at)
            if size > self.frame_bytes_max:
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
