"""One-time links: a way into the console for a person who has a key on the command line.

``rowtide console open`` sends its key to the console and gets a code. The link has the code in its
fragment, which browsers send to no server, so no log has it. A code works once, for 60 seconds.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from aiohttp import web

from rowtide.console.web.rights import KeyRights

__all__ = ["LINKS", "LINK_S_MAX", "OneTimeLinks"]

LINK_S_MAX = 60.0
LINKS_MAX = 1000
CODE_BYTES = 32


class OneTimeLinks:
    """Codes that have not been used, each with the key that the worker accepted for it."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._found: dict[str, tuple[float, KeyRights]] = {}

    def make(self, rights: KeyRights) -> str:
        """Return a new code for a key."""
        now_s = self._now_s()
        for code in [code for code, (end_s, _) in self._found.items() if end_s < now_s]:
            del self._found[code]
        while len(self._found) >= LINKS_MAX:
            del self._found[next(iter(self._found))]
        code = secrets.token_urlsafe(CODE_BYTES)
        self._found[code] = (now_s + LINK_S_MAX, rights)
        return code

    def take(self, code: str) -> KeyRights | None:
        """Return the key of a code and forget the code; None if it was used or is too old."""
        end_s, rights = self._found.pop(code, (0.0, None))
        return rights if self._now_s() <= end_s else None


LINKS = web.AppKey("LINKS", OneTimeLinks)
