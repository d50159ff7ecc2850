"""Hosts of their own for brokers, on one machine: what one sends another can be lost on the way.

A host is a network namespace with an address on a bridge, which reaches the other hosts and this
machine. Nothing is refused and nothing is reported: what is lost is sent to a hardware address that
nobody has, as where a switch has failed. Only root can make such hosts.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self, TypeVar

__all__ = ["BrokerHosts", "NoHosts"]

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
NOBODY = "02:00:00:00:00:fe"
LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 64 << 10


class NoHosts(Exception):
    """Network namespaces can't be made here."""


class BrokerHosts:
    """Hosts 0 to ``count`` - 1 between ``__enter__``, which may raise ``NoHosts``, and the end."""

    def __init__(self, count: int) -> None:
        # No other run's, and none that anything on this machine would want to reach.
        self._name = f"rt{os.getpid()}"
        self._net = f"198.18.{random.randrange(256)}"
        self._count = count
        self._threads: list[ThreadPoolExecutor] = []
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("ip", path=f"{os.defpath}:/usr/sbin:/sbin") is None:
            raise NoHosts("it takes root, and the command ip of iproute2")
        with ExitStack() as made:
            self._make(made)
            self._closing = made.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def address(self, host: int) -> str:
        """Return a host's address."""
        return f"{self._net}.{host + 1}"

    def run(self, host: int, do: Callable[[], T]) -> T:
        """Call something on a host: what it opens and starts is there."""
        return self._threads[host].submit(do).result()

    @contextmanager
    def lose(self, ways: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Let all that is sent on these ways be lost, each from a host to another."""
        with ExitStack() as back:
            for sender, receiver in ways:
                at = (self.address(receiver), "dev", "eth0")
                back.callback(self._on, sender, "neigh", "del", *at)
                self._on(sender, "neigh", "replace", *at, "lladdr", NOBODY, "nud", "permanent")
            yield

    def cut_off(
        self, host: int, *, mute: bool = True, deaf: bool = True
    ) -> AbstractContextManager[None]:
        """Let what a host sends all others be lost (``mute``), and what they send it (``deaf``)."""
        others = [other for other in range(self._count) if other != host]
        ways = [(host, other) for other in others if mute]
        return self.lose([*ways, *((other, host) for other in others if deaf)])

    def lead_to(self, host: int, port: int) -> None:
        """Lead to a host's port what comes to the same port of this machine's loopback address."""
        door = _Door((LOOPBACK, port), (self.address(host), port))
        self._closing.callback(door.server_close)
        self._closing.callback(door.shutdown)
        threading.Thread(target=door.serve_forever, name=f"door[{port}]", daemon=True).start()

    def _make(self, made: ExitStack) -> None:
        bridge = self._name
        _ip("link", "add", bridge, "type", "bridge")
        made.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{self._net}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for host in range(self._count):
            space, port = self._space(host), f"{bridge}-{host}"
            _ip("netns", "add", space)
            made.callback(_ip, "netns", "del", space)
            _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            made.callback(_ip, "link", "del", port)
            _ip("link", "set", port, "master", bridge, "up")
            self._on(host, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self._on(host, "link", "set", device, "up")
            thread = ThreadPoolExecutor(1, initializer=_enter, initargs=(space,))
            self._threads.append(made.enter_context(thread))

    def _space(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _on(self, host: int, *words: str) -> None:
        _ip("-n", self._space(host), *words)


def _ip(*words: str) -> None:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    done = subprocess.run(["ip", *words], env={"PATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise NoHosts(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _enter(space: str) -> None:
    """Bring this thread to a namespace."""
    with Path("/var/run/netns", space).open("rb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


class _Door(socketserver.ThreadingTCPServer):
    """Passes on what comes to an address, and what is answered."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], onward: tuple[str, int]) -> None:
        super().__init__(address, _Passage)
        self.onward = onward


class _Passage(socketserver.BaseRequestHandler):
    server: _Door

    def handle(self) -> None:
        with suppress(OSError), socket.create_connection(self.server.onward) as onward:
            for end in (onward, self.request):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=_carry, args=(onward, self.request), daemon=True)
            back.start()
            _carry(self.request, onward)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes until either side ends, and end both."""
    with suppress(OSError):
        while chunk := source.recv(CHUNK_BYTES):
            target.sendall(chunk)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
