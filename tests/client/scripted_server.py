"""A server that gives the answers of a script, on any number of connections."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message

from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["SILENCE", "Answer", "Scripted", "refusal", "running"]

SILENCE = None
"""In place of an answer: the connection is closed without one."""

HEAD = b"HTTP/1.1 %d -\r\nContent-Length: %d\r\nx-ots-requestid: r-%d\r\n\r\n%b"


class Answer:
    """One answer: a message, or a refusal with its HTTP status."""

    def __init__(self, message: Message, status: int = 200) -> None:
        self.status = status
        self.content = message.SerializeToString()


def refusal(code: str, status: int = 503, message: str = "No.") -> Answer:
    """Return an answer that refuses."""
    return Answer(pb.Error(code=code, message=message), status)


class Scripted:
    """Answers each operation from its own list, whose last answer is for ever."""

    def __init__(self, **answers: Sequence[Answer | None]) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self._answers = answers
        self._counts: dict[str, int] = defaultdict(int)

    @property
    def operations(self) -> list[str]:
        """Return the operations that were asked for."""
        return [operation for operation, _ in self.asked]

    def serve(self, connection: socket.socket) -> None:
        """Answer a connection until it ends, or an answer is silence."""
        with connection, connection.makefile("rb") as reader:
            while head := reader.readline():
                operation = head.split()[1].decode().removeprefix("/")
                length = 0
                while (line := reader.readline().lower()) not in (b"\r\n", b""):
                    if line.startswith(b"content-length:"):
                        length = int(line[15:])
                self.asked.append((operation, reader.read(length)))
                script = self._answers[operation]
                answer = script[min(self._counts[operation], len(script) - 1)]
                self._counts[operation] += 1
                if answer is None:
                    return
                content = answer.content
                number = len(self.asked)
                connection.sendall(HEAD % (answer.status, len(content), number, content))


@contextmanager
def running(scripted: Scripted) -> Iterator[dict[str, Any]]:
    """Yield how a client reaches a scripted server that runs."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        ended = threading.Event()

        def accept() -> None:
            while True:
                connection, _ = listening.accept()
                if ended.is_set():
                    connection.close()
                    return
                thread = threading.Thread(target=scripted.serve, args=(connection,))
                threads.append(thread)
                thread.start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield {
                "endpoint": f"http://127.0.0.1:{port}",
                "instance": "inst",
                "access_key_id": "id",
                "access_key_secret": "secret",
            }
        finally:
            ended.set()
            socket.create_connection(("127.0.0.1", port)).close()
            accepting.join()
    for thread in threads:
        thread.join()
