"""What a call to a server may fail with, apart from the client: most commands only name these."""

from __future__ import annotations

__all__ = ["NoAnswer", "NotConnected", "ServerError"]


class ServerError(Exception):
    """The server refused; ``code`` and ``message`` are the protocol's, ``status`` HTTP's."""

    def __init__(self, code: str, message: str, status: int, request_id: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.request_id = request_id


class NoAnswer(Exception):
    """The endpoint can't be reached, or left without an answer: a write may have been applied."""


class NotConnected(NoAnswer):
    """Nothing was sent, so nothing was applied."""
