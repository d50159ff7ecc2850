"""The failures of a call to a server. Separate, because most commands need no client."""

from __future__ import annotations

__all__ = ["NoAnswer", "NotConnected", "ServerError"]


class ServerError(Exception):
    """An error answer; ``code`` and ``message`` are the protocol's, ``status`` is HTTP's."""

    def __init__(self, code: str, message: str, status: int, request_id: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status
        self.request_id = request_id


class NoAnswer(Exception):
    """The endpoint cannot be reached or did not answer: a write may have been applied."""


class NotConnected(NoAnswer):
    """Nothing was sent, so nothing was applied."""
