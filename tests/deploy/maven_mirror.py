"""A Maven repository on loopback that serves jars made up by a test, whole or damaged."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rowtide.deploy.kafka.jars import Jar

__all__ = ["MavenMirror", "maven_mirror"]


@dataclass
class MavenMirror:
    """What is served, by path, and which jars were asked for."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)
    """Paths whose next answer breaks off half way; a second request gets the whole."""
    requested: list[str] = field(default_factory=list)

    def offer(self, artifact: str, body: bytes) -> Jar:
        """Serve ``body`` as the jar of ``org.example:artifact:1.0`` and return how it is locked."""
        self.bodies[self.path(artifact)] = body
        return Jar("org.example", artifact, "1.0", hashlib.sha256(body).hexdigest())

    def tear(self, artifact: str) -> None:
        self.torn.add(self.path(artifact))

    @staticmethod
    def path(artifact: str) -> str:
        return f"/org/example/{artifact}/1.0/{artifact}-1.0.jar"


@contextmanager
def maven_mirror() -> Iterator[MavenMirror]:
    """Serve until the block is left."""
    mirror = MavenMirror()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(mirror))
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(mirror: MavenMirror) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = mirror.bodies.get(self.path)
            if body is None:
                self.send_error(404)
                return
            mirror.requested.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            cut = len(body) // 2 if self.path in mirror.torn else len(body)
            mirror.torn.discard(self.path)
            self.wfile.write(body[:cut])

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
