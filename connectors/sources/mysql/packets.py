"""Packets of a connection that PyMySQL has opened: its handshake, its TLS, then bytes by our hands.

PyMySQL's own reading of a packet costs 4 us and its reading of a row far more; a binlog of short
transactions has four packets per change. ``ready`` tells whether a packet is here already, so that
who reads can hand over what it has before it waits. Not for use by two threads.
"""

from __future__ import annotations

import socket
from typing import Any

import pymysql

__all__ = ["ConnectionLost", "Packets", "length_at"]

_RECEIVE_BYTES = 256 * 1024
_LONGEST = 0xFFFFFF
"""A packet of this length goes on in the next one."""


class ConnectionLost(Exception):
    """The server ended the connection, or did not answer for too long."""


class Packets:
    """What the server sends on ``connection`` from now on."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: socket.socket = connection._sock
        self._bytes = b""
        self._at = 0

    def command(self, code: int, arguments: bytes) -> None:
        """Send a command; its answer are the next packets."""
        assert self._at == len(self._bytes), "the answer before was not read to its end"
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
        """Return the next packet, without its head. Raises ConnectionLost."""
        at = self._at
        begin = at + 4
        if len(self._bytes) >= begin:
            length = int.from_bytes(self._bytes[at : at + 3], "little")
            end = begin + length
            if len(self._bytes) >= end and length != _LONGEST:
                self._at = end
                return self._bytes[begin:end]
        return self._assembled()

    def _assembled(self) -> bytes:
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
        """Wait until at least ``count`` bytes are here."""
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
    """Return a number whose first byte tells its length, and where it ends."""
    first = packet[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}[first]
    return int.from_bytes(packet[at + 1 : at + 1 + size], "little"), at + 1 + size
