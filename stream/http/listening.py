"""The socket on which a worker listens, and the address at which others reach it."""

from __future__ import annotations

import os
import socket

__all__ = ["bind", "reachable"]


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound but does not listen yet. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # On Windows it would let two processes listen on one port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def reachable(host: str) -> str:
    """Return a host as it is written in an address that others connect to."""
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    return f"[{host}]" if ":" in host else host
