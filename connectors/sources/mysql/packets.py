"""Packets of a connection that PyMySQL has opened. After handshake and TLS we read its
bytes.

PyMySQL takes 4 us to read a packet and far more for a row. A binlog of short transactions
has four packets per change. ``ready`` returns whether a packet has arrived, so that the
reader can emit what it has before it waits. Not thread-safe.
"""

from __future__ import annotations

import socket
from typing import Any

import pymysql

__all__ = ["ConnectionLost", "Packets", "length_at"]

_RECEIVE_BYTES = 256 * 1024
_LONGEST = 0xFFFFFF
"""A packet of this length continues in the next one."""


class ConnectionLost(Exception):
    """The server ended the connection, or sent nothing for too long."""


class Packets:
    """What the server sends on ``connection`` from now on."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._bytes = b""
        self._at = 0

    def command(self, code: int, arguments: bytes) -> None:
        """Send a command. Its response is the next packets."""
        assert self._at == len(self._bytes), "the response before was not read to its end"
        try:
            self._connection._execute_command(code, arguments)
        except (OSError, pymysql.MySQLError) as error:
            raise ConnectionLost(f"The connection ended: {error}") from error

    def ready(self) -> bool:
        """True if ``next`` would return without waiting."""
        at = self._at
        if len(self._bytes) - at < 4:
            return False
        return len(self._bytes) >= at + 4 + int.from_bytes(self._bytes[at : at + 3], "little")

    def next(self) -> bytes:
        """Return the next packet without its header. Raises ConnectionLost."""
        at = self._at
        begin = at + 4
        if len(self._bytes) >= begin:
            length = int.from_bytes(self._bytes[at : at + 3], "little")
            end = begin + length
            if len(self._bytes) >= end and length != _LONGEST:
                self._at = end
                return self._bytes[begin:end]
        return self._assemble()

    def _assemble(self) -> bytes:
        parts: list[bytes] = []
        while True:
            self._fill(4)
            length = int.from_bytes(self._bytes[self._at : self._at + 3], "little")
            self._fill(4 + length)
            begin = self._at + 4
            self._at = begin + length
            parts.append(self._bytes[begin : self._at])
            if length != _LONGEST:
                return b"".join(parts)

    def _fill(self, count: int) -> None:
        """Wait until at least ``count`` bytes have arrived."""
        here = len(self._bytes) - self._at
        if here >= count:
            return
        parts = [self._bytes[self._at :]]
        while here < count:
            try:
                part = self._socket.recv(_RECEIVE_BYTES)
            except OSError as error:
                raise ConnectionLost(f"The connection ended: {error}") from error
            if not part:
                raise ConnectionLost("The server ended the connection.")
            parts.append(part)
            here += len(part)
        self._bytes, self._at = b"".join(parts), 0


def length_at(packet: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length and its end. The first byte decides the length."""
    first = packet[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(packet[at + 1 : at + 1 + size], "little"), at + 1 + size
