"""Checks that a Kafka broker answers at an address, with the protocol on a plain socket."""

from __future__ import annotations

import socket
import struct

__all__ = ["is_answering"]

API_VERSIONS = 18
CORRELATION = 7


def is_answering(host: str, port: int, timeout_s: float = 1.0) -> bool:
    """True if a broker answers ApiVersions (v0) at ``host:port``.

    The broker opens its listener only when its log managers and metadata are ready, so an answer
    means that it serves.
    """
    client_id = b"rowtide"
    header = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION, len(client_id)) + client_id
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(header)) + header)
            answer = connection.recv(10, socket.MSG_WAITALL)
        _, correlation, error = struct.unpack(">iih", answer)
    except (OSError, struct.error):
        return False
    return bool(correlation == CORRELATION and error == 0)
