"""The clock of a server that was started with ``--test-clock``, as a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from rowtide.cli.client import ProtocolClient, ServerError

__all__ = ["Clock"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock:
    """Runs as the machine's does, and is advanced. It never goes back, over all tests.

    Versions, time to live, the expiry of streams and the lives of local transactions follow it.
    Signatures and time-outs do not. Advancing it also removes at once what has expired in the
    tables of the test's instance, to which ``admin`` is connected: no test waits for that.
    """

    def __init__(self, admin: ProtocolClient) -> None:
        self._admin = admin

    def now(self) -> datetime:
        """Return the time of the server, in UTC."""
        return self._moved(by_us=0)

    def advance(self, seconds: float) -> datetime:
        """Let ``seconds`` pass at once, and return the time then. Raises ``ValueError``."""
        return self._moved(by_us=round(seconds * 1_000_000))

    def set(self, moment: datetime) -> datetime:
        """Let it be ``moment``, and return the time then.

        Raises ``ValueError`` for a moment that has passed, or one without a time zone.
        """
        if moment.tzinfo is None:
            raise ValueError(f"The moment {moment} has no time zone: add tzinfo=UTC.")
        return self._moved(to_us=(moment - EPOCH) // MICROSECOND)

    def _moved(self, **by_or_to: int) -> datetime:
        try:
            now_us: int = self._admin.call_json("RowtideAdvanceClock", by_or_to)["now_us"]
        except ServerError as error:
            raise ValueError(error.message) from error
        if by_or_to != {"by_us": 0}:
            for table in self._admin.list_table():
                self._admin.call_json("RowtideReclaim", {"table": table})
        return EPOCH + timedelta(microseconds=now_us)
