"""A request that the console refuses itself, with words in the visitor's language."""

from __future__ import annotations

__all__ = ["RequestRefused"]


class RequestRefused(Exception):
    """Nothing was done. ``text`` is the name of a text; the status is one of ``CODES``.

    ``retry_after_s`` says when the same request may succeed; 0: it will not.
    """

    def __init__(self, status: int, text: str, *, retry_after_s: int = 0, **values: object) -> None:
        super().__init__(text, values)
        self.status = status
        self.text = text
        self.values = values
        self.retry_after_s = retry_after_s
