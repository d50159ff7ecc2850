"""Viewers of a feed that take everything and look at little, as a process of their own.

It reads one JSON object from standard input: ``port``, ``token`` and ``paths``, an address for each
viewer. It prints a line once all are connected. When its input ends, it prints what they got.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys

CONNECT_S_MAX = 60.0
RECEIVE_BYTES = 256 * 1024
RECORD = b'"kind":'
READY = b"event: ready"


def main() -> None:
    """Follow feeds until standard input ends."""
    asked = json.loads(sys.stdin.readline())
    with selectors.DefaultSelector() as waiting:
        for path in asked["paths"]:
            connection = socket.create_connection(("127.0.0.1", asked["port"]), CONNECT_S_MAX)
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Authorization: Bearer {asked['token']}\r\n\r\n".encode()
            )
            connection.setblocking(False)
            waiting.register(connection, selectors.EVENT_READ)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        print(json.dumps(_follow(waiting, len(asked["paths"]))), flush=True)  # noqa: T201


def _follow(waiting: selectors.BaseSelector, viewers: int) -> dict[str, int]:
    """Read until standard input ends; return counts."""
    buffer = bytearray(RECEIVE_BYTES)
    counts = {"ready": 0, "ended": 0, "bytes": 0, "records": 0}
    is_reported = False
    while True:
        for found, _ in waiting.select():
            connection = found.fileobj
            if not isinstance(connection, socket.socket):
                return counts
            length = connection.recv_into(buffer)
            if not length:
                waiting.unregister(connection)
                connection.close()
                counts["ended"] += 1
                continue
            counts["bytes"] += length
            counts["records"] += buffer.count(RECORD, 0, length)
            if counts["ready"] < viewers:
                counts["ready"] += buffer.count(READY, 0, length)
        if counts["ready"] == viewers and not is_reported:
            is_reported = True
            print("ready", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
