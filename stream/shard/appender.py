"""The append rule on one log: a compare-and-set on the log's end.

Every record names the offset at which it must be; at any other offset it is void. So the
writer that evaluated against the true end wins, and a late or doubled batch is void. This
module turns the log's answer into one of three results: the batch is valid; it is void for
good; or nothing of it was written. If the outcome is unknown, it appends a no-op until
one is valid. The log before that no-op then shows what happened.

One batch is in flight per appender. Times are seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.measures.counts import Counts

__all__ = ["Appended", "Appender", "BatchRefused", "LogShortened", "read_known"]

logger = logging.getLogger(__name__)

BACKOFF_S = 0.05
BACKOFF_S_MAX = 1.0
READ_BYTES = 4 * 1024 * 1024
PAGE_S = 5.0
"""Time for which an empty answer is retried where entries are known to exist."""


class LogShortened(Exception):
    """The log ends before an offset that it acknowledged: the broker lost an acknowledged batch."""

    unsettled = False
    """True if the batch's outcome is unknown: it may still be written at the offset it names."""


class BatchRefused(Rejected):
    """The log wrote nothing of a batch, and never will."""


class Appended(NamedTuple):
    """The outcome of an append. ``is_valid`` is True if the batch is valid.

    ``entries`` must be replayed after it. They follow a valid batch; otherwise they begin
    at the named offset. Both end before ``end``, the log's next offset.
    """

    is_valid: bool
    entries: Sequence[Entry]
    end: int


class Appender:
    """Appends batches to ``log`` at named offsets.

    ``noop`` makes a no-op record (key, value) that names the given offset.
    """

    def __init__(
        self,
        log: Log,
        noop: Callable[[int], tuple[bytes, bytes]],
        *,
        deadline_s: float = 10.0,
        counts: Counts | None = None,
    ) -> None:
        self.log = log
        self.refusal = ""
        """The log's last error to a fence that still retries."""
        self._counts = counts or Counts()
        self._noop = noop
        self._deadline_s = deadline_s

    async def append(self, batch: Sequence[tuple[bytes, bytes]], at: int) -> Appended:
        """Append ``batch``, whose records name the offsets from ``at`` on.

        Raises ``Unavailable`` if nothing was written (the end may have moved all the
        same), ``BatchRefused`` if a retry would fail too, and ``LogShortened`` if the log
        ends before ``at``. An unknown outcome is not raised but resolved, however long
        that takes. Cancelling leaves it unknown.
        """
        try:
            base = await self.log.append(batch, deadline_s=self._deadline_s)
        except Rejected as error:
            # Only this error means that nothing was written: later errors do not.
            raise BatchRefused(error.code, error.message) from error
        except OutcomeUnknown as error:
            logger.warning("append to %s at %d: outcome unknown: %s", self.log.name, at, error)
            self._counts.appends_unknown += 1
            try:
                return await self._settle(batch, at)
            except LogShortened as lost:
                lost.unsettled = True
                raise
        if base == at:
            return Appended(True, (), at + len(batch))
        if base < at:
            raise LogShortened(
                f"{self.log.name} gave offset {base} to records that follow offset {at - 1}: "
                f"entries {base} to {at - 1} were acknowledged and are lost"
            )
        # Other entries follow from ``at`` on, or our own batch from an earlier attempt of
        # the client.
        end = base + len(batch)
        return self._compare(batch, at, await self.read(at, end), end)

    async def fence(self) -> int:
        """Append a no-op until one is valid; return the offset after it.

        Any earlier append then lies before that offset, or is void for good.
        """
        waited = BACKOFF_S
        while True:
            try:
                _, end = await self.log.bounds()
                base = await self.log.append([self._noop(end)], deadline_s=self._deadline_s)
                if base == end:
                    return end + 1
            except OutcomeUnknown as error:
                self.refusal = str(error)
                await self.log.disconnect()
            except Unavailable as error:
                self.refusal = str(error)
                logger.debug("fence of %s waits: %s", self.log.name, error)
            await asyncio.sleep(waited)
            waited = min(waited * 2, BACKOFF_S_MAX)

    async def read(self, start: int, end: int) -> list[Entry]:
        """Return the entries start <= offset < end. Raises the errors of ``read_known``."""
        entries: list[Entry] = []
        while start < end:
            page = await read_known(self.log, start, end)
            entries += page
            start = page[-1].offset + 1
        return [entry for entry in entries if entry.offset < end]

    async def _settle(self, batch: Sequence[tuple[bytes, bytes]], at: int) -> Appended:
        """Resolve an unknown outcome: fence the log, then read if it has the batch."""
        await self.log.disconnect()
        end = await self.fence()
        if end <= at:
            raise LogShortened(f"{self.log.name} ends at {end - 1}, expected {at} at least")
        waited = BACKOFF_S
        while True:
            try:
                return self._compare(batch, at, await self.read(at, end), end)
            except Unavailable as error:
                logger.warning("settling %s at %d waits: %s", self.log.name, at, error)
                await asyncio.sleep(waited)
                waited = min(waited * 2, BACKOFF_S_MAX)

    def _compare(
        self, batch: Sequence[tuple[bytes, bytes]], at: int, entries: Sequence[Entry], end: int
    ) -> Appended:
        """Compare the entries from ``at`` on with the batch that we sent."""
        if entries and entries[0].offset == at and entries[0].value == batch[0][1]:
            return Appended(True, entries[len(batch) :], end)
        return Appended(False, entries, end)


async def read_known(log: Log, start: int, end: int) -> Sequence[Entry]:
    """Return entries from ``start`` on, at least one, of a log known to reach ``end``.

    An empty answer proves nothing: a new leader may know less than was acknowledged for a
    moment, but it reports the log's end only once it knows it. Raises ``LogShortened`` if
    that end lies below ``end``, and ``Unavailable`` if no entry came for ``PAGE_S``.
    """
    clock = asyncio.get_running_loop().time
    until_s = clock() + PAGE_S
    while True:
        refusal: Unavailable | None = None
        try:
            if entries := await log.read(start, bytes_max=READ_BYTES):
                return entries
        # As for an offset beyond the end, which ``start`` may be by now.
        except Unavailable as error:
            refusal = error
        _, log_end = await log.bounds()
        if log_end < end:
            raise LogShortened(f"{log.name} ends at {log_end}, expected {end}") from refusal
        if refusal is not None:
            raise refusal
        if clock() > until_s:
            raise Unavailable(f"{log.name} ends at {log_end} and returns no entry from {start} on")
        await asyncio.sleep(BACKOFF_S)
