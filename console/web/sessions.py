"""Who is logged in: sessions in the memory of this process, found by a random cookie.

A session has the access key's secret, because each action is signed with it. It is in no file and
in no cookie: when the process ends, all sessions end. Times are seconds of a clock that never goes
back, so a change of the machine's clock neither ends nor prolongs a session.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

from rowtide.console.web.refusals import RequestRefused
from rowtide.console.workers.calls import KeyPair
from rowtide.core.cluster.token_bucket import TokenBucket

__all__ = [
    "CHANGES_PER_S",
    "IDLE_S_MAX",
    "SESSIONS",
    "SESSION_S_MAX",
    "WebSession",
    "WebSessions",
    "attach_session",
    "credentials_of",
    "find_session",
    "session_of",
]

SESSION_S_MAX = 12 * 3600.0
IDLE_S_MAX = 3600.0
SESSIONS_MAX = 10_000
"""More sessions than people: a program that logs in for each request must not fill the memory."""
CHANGES_PER_S = 20
TOKEN_BYTES = 32


@dataclass(slots=True, kw_only=True)
class WebSession:
    """One person's session. ``id`` is the cookie's value and no part of any page or log line.

    ``instances`` are those that the key may use and that exist. ``language`` and ``theme`` are
    empty until the person chooses. ``notices`` are (key, values) of texts that the next page shows
    once.
    """

    id: str = field(repr=False)
    access_key_id: str
    access_key_secret: str = field(repr=False)
    instances: tuple[str, ...]
    is_read_only: bool
    is_admin: bool
    csrf: str = field(repr=False)
    began_s: float
    used_s: float
    language: str = ""
    theme: str = ""
    notices: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    changes: TokenBucket = field(default_factory=lambda: TokenBucket(CHANGES_PER_S, CHANGES_PER_S))

    @property
    def instance(self) -> str:
        """Return the instance of pages that name none: the first."""
        return self.instances[0] if self.instances else ""

    @property
    def can_administer(self) -> bool:
        """True if the key may change what only administrators see: keys, tokens and shards."""
        return self.is_admin and not self.is_read_only

    @property
    def credentials(self) -> KeyPair:
        """Return the key that signs this person's actions."""
        return KeyPair(self.access_key_id, self.access_key_secret)


class WebSessions:
    """All sessions. A session ends after 12 hours, or after an hour without a request."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self._found: dict[str, WebSession] = {}

    def begin(
        self, key: KeyPair, instances: tuple[str, ...], *, is_admin: bool, is_read_only: bool
    ) -> WebSession:
        """Return a new session of a key that the worker has accepted."""
        self._remove_old()
        while len(self._found) >= SESSIONS_MAX:
            del self._found[next(iter(self._found))]
        now_s = self.now_s()
        session = WebSession(
            id=secrets.token_urlsafe(TOKEN_BYTES),
            access_key_id=key.access_key_id,
            access_key_secret=key.access_key_secret,
            instances=instances,
            is_read_only=is_read_only,
            is_admin=is_admin,
            csrf=secrets.token_urlsafe(TOKEN_BYTES),
            began_s=now_s,
            used_s=now_s,
        )
        self._found[session.id] = session
        return session

    def find(self, session_id: str, *, touch: bool = True) -> WebSession | None:
        """Return a session that has not ended; ``touch`` notes that the person is there."""
        session = self._found.get(session_id)
        if session is None:
            return None
        if self._is_over(session):
            del self._found[session_id]
            return None
        if touch:
            session.used_s = self.now_s()
        return session

    def end(self, session: WebSession) -> None:
        """End a session now."""
        self._found.pop(session.id, None)

    def has(self, session: WebSession) -> bool:
        """True if a session has not ended. It does not count as a use."""
        return self.find(session.id, touch=False) is session

    def __len__(self) -> int:
        return len(self._found)

    def _is_over(self, session: WebSession) -> bool:
        now_s = self.now_s()
        return now_s - session.began_s > SESSION_S_MAX or now_s - session.used_s > IDLE_S_MAX

    def _remove_old(self) -> None:
        for session in [found for found in self._found.values() if self._is_over(found)]:
            del self._found[session.id]


SESSIONS = web.AppKey("SESSIONS", WebSessions)
_SESSION = "rowtide.session"


def find_session(request: web.Request) -> WebSession | None:
    """Return the session of a request, or None."""
    session: WebSession | None = request.get(_SESSION)
    return session


def session_of(request: web.Request) -> WebSession:
    """Return the session of a request. Routes with ``needs_session`` have one."""
    session = find_session(request)
    if session is None:
        raise RequestRefused(401, "failure.session")
    return session


def attach_session(request: web.Request, session: WebSession) -> None:
    """Make a session that of a request."""
    request[_SESSION] = session


def credentials_of(request: web.Request) -> KeyPair:
    """Return the access key of the person who makes a request."""
    return session_of(request).credentials
