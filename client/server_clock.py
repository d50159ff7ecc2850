"""The time with which requests are signed: the machine's, or the server's if the two differ much.

A server refuses a request whose date is 15 minutes off. A program that runs beside its server, such
as the console, may follow the server's clock instead: it takes the date of any answer, a refusal
too. Others do not, since an answer without a signature could make them sign for another time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

__all__ = ["STEP_S", "ServerClock"]

STEP_S = 60.0
"""A smaller difference is left alone. It is far below what the server refuses."""


def machine_time() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)


class ServerClock:
    """``follows``: the server's clock is used if it differs by more than ``STEP_S``."""

    def __init__(
        self, *, follows: bool = False, machine: Callable[[], datetime] = machine_time
    ) -> None:
        self._follows = follows
        self._machine = machine
        self._ahead = timedelta()

    def now(self) -> datetime:
        """Return the time to sign with."""
        return self._machine() + self._ahead

    def learn(self, server_us: int) -> None:
        """Take the date of an answer, Unix microseconds or 0."""
        if not self._follows or not server_us:
            return
        server = datetime.fromtimestamp(server_us / 1_000_000, UTC)
        if abs((server - self.now()).total_seconds()) > STEP_S:
            self._ahead = server - self._machine()

    def has_moved_since(self, moment: datetime) -> bool:
        """Return True if the time is now another than a request of ``moment`` was signed with.

        Then a request that was refused for its date may be sent again. Another request's answer may
        have taught the time meanwhile.
        """
        return self._follows and abs((self.now() - moment).total_seconds()) > STEP_S
