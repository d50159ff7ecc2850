"""Free ports of this machine, for servers that are restarted on the same port."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

__all__ = ["PORTS", "TRIES", "free_ports", "is_free"]

PORTS = range(20_000, 32_768)
"""Below the ephemeral ports of Linux (32768) and macOS (49152). Above, a client that retries a dead
server may get the server's own port as its source port and connect to itself. Then the server
cannot start again.
"""

TRIES = 1000


def is_free(host: str, port: int) -> bool:
    """True if a program could listen at ``host:port`` now."""
    with socket.socket() as listener:
        # Like Java: a port whose last connections are in TIME_WAIT is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError:
            return False
    return True


def free_ports(host: str) -> Iterator[int]:
    """Yield distinct ports that are free now, out of ``TRIES``; there may be none."""
    for port in random.sample(PORTS, TRIES):
        if is_free(host, port):
            yield port
