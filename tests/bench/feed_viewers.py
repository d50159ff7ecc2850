"""Viewers of a feed that take everything and look at little, as a process of their own.

It reads one JSON object from standard input: ``port``, ``token`` and ``paths``, an address for each
viewer. It prints a line once all are connected. When its input ends, it prints what they got.

The viewers of a server are elsewhere, but here they share its processors. So they take what has
come every 20 ms, as a busy browser does, and records are counted for one viewer of each address:
the others get the same frames. Bytes are counted for all.
"""

from __future__ import annotations

import json
import resource
import selectors
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass

CONNECT_S_MAX = 60.0
RECEIVE_BYTES = 256 * 1024
ROUND_S = 0.02
RECORD = b'"kind":'
READY = b"event: ready"


@dataclass(slots=True)
class Viewer:
    """One connection. ``stands_for`` viewers are at its address; 0: another one counts for it."""

    connection: socket.socket
    stands_for: int
    is_ready: bool = False


def main() -> None:
    """Follow feeds until standard input ends."""
    asked = json.loads(sys.stdin.readline())
    waiting_for = Counter(asked["paths"])
    with selectors.DefaultSelector() as waiting:
        for path in asked["paths"]:
            connection = socket.create_connection(("127.0.0.1", asked["port"]), CONNECT_S_MAX)
            connection.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Authorization: Bearer {asked['token']}\r\n\r\n".encode()
            )
            connection.setblocking(False)
            viewer = Viewer(connection, waiting_for.pop(path, 0))
            waiting.register(connection, selectors.EVENT_READ, viewer)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        counts = _follow(waiting, len(asked["paths"]))
    print(json.dumps(counts), flush=True)  # noqa: T201


def _follow(waiting: selectors.BaseSelector, viewers: int) -> dict[str, float]:
    """Read until standard input ends; return counts, and the CPU time since all were ready."""
    buffer = bytearray(RECEIVE_BYTES)
    counts = {"ready": 0, "ended": 0, "bytes": 0, "records": 0, "cpu_s": 0.0}
    before_s = 0.0
    while True:
        for found, _ in waiting.select():
            viewer = found.data
            if viewer is None:
                counts["cpu_s"] = _cpu_s() - before_s
                return counts
            length = viewer.connection.recv_into(buffer)
            if not length:
                waiting.unregister(viewer.connection)
                viewer.connection.close()
                counts["ended"] += 1
            counts["bytes"] += length
            if viewer.stands_for:
                counts["records"] += viewer.stands_for * buffer.count(RECORD, 0, length)
            if not viewer.is_ready and buffer.find(READY, 0, length) >= 0:
                viewer.is_ready = True
                counts["ready"] += 1
                if counts["ready"] == viewers:
                    before_s = _cpu_s()
                    print("ready", flush=True)  # noqa: T201
        time.sleep(ROUND_S)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
