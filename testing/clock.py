"""The clock of a server that was started with ``--test-clock``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rowtide.cli.client import ProtocolClient, ServerError

__all__ = ["Clock"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock:
    """Runs like the machine's clock, and can be advanced. It never goes back, across all tests.

    Versions, time to live, the expiry of streams and the life of local transactions follow it.
    Signatures and time-outs do not. To advance it also removes what has expired in the tables of
    the test's instance, to which ``admin`` is connected. So no test has to wait for that.
    """

    def __init__(self, admin: ProtocolClient) -> None:
        self._admin = admin

    def now(self) -> datetime:
        """Return the time of the server, in UTC."""
        return self._move(by_us=0)

    def advance(self, seconds: float) -> datetime:
        """Advance by ``seconds``; return the new time. Raises ``ValueError``."""
        return self._move(by_us=round(seconds * 1_000_000))

    def set(self, moment: datetime) -> datetime:
        """Advance to ``moment``; return the new time.

        Raises ``ValueError`` for a moment in the past, or one without a time zone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"The moment {moment} has no time zone: add tzinfo=UTC.")
        return self._move(to_us=(moment - EPOCH) // MICROSECOND)

    def _move(self, **by_or_to: int) -> datetime:
        try:
            now_us: int = self._admin.call_json("RowtideAdvanceClock", by_or_to)["now_us"]
        except ServerError as error:
            raise ValueError(error.message) from error
        if by_or_to != {"by_us": 0}:
            for table in self._admin.list_table():
                self._admin.call_json("RowtideReclaim", {"table": table})
        return EPOCH + timedelta(microseconds=now_us)
