"""One shard as a standby follows it: its log folded into the local rows, and the view's age.

A shard is in one of four states:

- *Followed*: its log is read.
- *Lacking*: it needs something before it can continue. The changelog has trimmed entries, the
  catalog an unknown index.
- *Broken* by bytes that no owner wrote. The shard's owner reports them to the operator.
- *Unfollowed*: before it begins, and after its seal.

Only the view of a followed shard gets younger. ``fresh_s`` is when the fetch was sent whose end
the rows have reached.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.rows.fold import Writes
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Entry
from rowtide.stream.log.tails import Tail, Tails
from rowtide.stream.shard.replay import Range, replay, shard_at_mark, take
from rowtide.stream.shard.row_store import RowStore, StoreFailed

__all__ = ["FollowedLog", "StandbyShard", "Unflushed"]

logger = logging.getLogger(__name__)

UNFLUSHED_MAX = 50_000
"""Bound of remembered chunks that the changelog lacks; an owner flushes before that."""


class Unflushed(NamedTuple):
    """Chunks that the changelog may lack: a slot on these rows need not read the log for them.

    ``keys`` were written by the entries after ``since``, up to ``applied``.
    """

    since: int
    applied: int
    keys: Collection[bytes]

    def is_complete(self, *, flushed: int, applied: int) -> bool:
        """True if it has all chunks that rows at ``applied`` have and the changelog may lack."""
        return self.since <= flushed and self.applied == applied


@dataclass(frozen=True, slots=True)
class UnfollowedLog:
    """The log is not read: it has not begun, it has ended, or its standby closes."""


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """``tail`` reads the log."""

    tail: Tail


@dataclass(frozen=True, slots=True)
class LackingLog:
    """The log cannot be folded before ``mend``. ``why`` says what the shard lacks."""

    why: str


@dataclass(frozen=True, slots=True)
class BrokenLog:
    """The log has bytes that no owner wrote. ``why`` is the error of the fold."""

    why: str


class StandbyShard:
    """A follower of one log.

    ``on_change`` is called, with it and the number of records, at each change. Readers use it
    like an owner: ``rows``, ``shard.state.options`` and ``require_readable``.
    """

    def __init__(
        self,
        table: Table,
        place: ShardRange,
        rows: RowStore,
        tails: Tails,
        on_change: Callable[[StandbyShard, int], None],
        *,
        limits: Limits,
    ) -> None:
        self.rows = rows
        self.place = place
        self.fresh_s: float | None = None
        self.end = 0
        """The log's next offset, as last reported."""
        self.others: Sequence[Range] = ()
        """Keys that returned to the slot with another shard after this one had ended."""
        self._tails = tails
        self._on_change = on_change
        self._limits = limits
        self._dropped: set[int] = set()
        """Indexes that records named, and that the catalog does not have."""
        self._topic = ""
        self._state: UnfollowedLog | FollowedLog | LackingLog | BrokenLog = UnfollowedLog()
        self.shard = shard_at_mark(table, place, rows, limits)
        self._since = self.shard.state.applied
        self._written: dict[bytes, int] = {}
        """Keys written by entries after ``_since``, each with the last offset of its batch."""

    @property
    def lacks(self) -> str:
        """What the shard lacks before its log can be folded further; empty if nothing."""
        return self._state.why if isinstance(self._state, LackingLog) else ""

    @property
    def broken(self) -> str:
        """Why the log can never be folded further; empty if it can."""
        return self._state.why if isinstance(self._state, BrokenLog) else ""

    @property
    def has_ended(self) -> bool:
        """True if the log has its last record: there is nothing more to follow."""
        return self.shard.state.seal is not None or bool(self.broken)

    @property
    def lag(self) -> int:
        """The number of entries that the log had more than the rows, at its last report.

        Once the catalog has the log's seal, the log reaches at least up to it: a deposed broker
        reports an old end.
        """
        return max(0, max(self.end - 1, self.place.sealed_at) - self.shard.state.applied)

    def begin(self, topic: str, lacks: str = "") -> None:
        """Follow the log from the rows' mark on; with ``lacks`` only after ``mend``."""
        self._topic = topic
        if lacks:
            self._state = LackingLog(lacks)
        elif not self.has_ended:
            self._state = FollowedLog(self._tails.follow(topic, self.shard.next_offset, self))

    def leave(self) -> None:
        """Stop following; the rows may be closed."""
        self.fresh_s = None
        self._stop()

    def _stop(self) -> None:
        if isinstance(state := self._state, FollowedLog):
            self._tails.leave(state.tail)
            self._state = UnfollowedLog()

    def retable(self, table: Table, place: ShardRange) -> None:
        """Set the table and the shard as the catalog has them now."""
        self.place = place
        if table != self.shard.table:
            self.shard.retable(table)

    def require_readable(self) -> None:
        """Raise ``Unavailable`` if there is no view to read."""
        if self.fresh_s is None:
            raise Unavailable("The partition is not available.")

    def has_read_since(self, asked_s: float) -> bool:
        """True if the log was read to an end that is new enough, or cannot be read further now."""
        if self.lacks or self.has_ended:
            return True
        return self.fresh_s is not None and self.fresh_s >= asked_s

    # Calls from the tails.

    def take(self, entries: Sequence[Entry], end: int, asked_s: float) -> None:
        """Fold the next entries of the log."""
        self.end = end
        if entries:
            self._fold(entries)
        # A deposed leader may report a part of a copy as the whole.
        partly = self.place.copied and not self.shard.state.stream_start
        if isinstance(self._state, FollowedLog) and not self.lag and not partly:
            self.fresh_s = asked_s
        if self.shard.state.seal is not None:
            # Its children's writes are not here, so the view ages from now on.
            self._stop()
        self._on_change(self, len(entries))

    def note_trim(self) -> None:
        """Wait for the changelog, which has the trimmed entries' rows."""
        self.lack("its log was trimmed; the changelog has the rows")

    def _fold(self, entries: Sequence[Entry]) -> None:
        shard = self.shard
        shard.indexes.passed_over.clear()
        try:
            writes, _ = replay(shard, entries)
            if shard.indexes.passed_over - self._dropped:
                self.lack("it has an index that the catalog did not have yet")
                return
            taken = take(shard, self.rows, writes, self.others)
            self._note(taken, entries[-1].offset)
        except StoreFailed as error:
            self.lack(str(error))
        except record.CorruptRecord as error:
            logger.critical("shard %s: following stopped for good: %s", shard.shard_id, error)
            self.leave()
            self._state = BrokenLog(str(error))

    def _note(self, writes: Writes, offset: int) -> None:
        self._written |= dict.fromkeys(map(itemgetter(0), writes), offset)
        if len(self._written) > UNFLUSHED_MAX:
            self._since, self._written = self.shard.state.applied, {}

    def note_flush(self) -> None:
        """Drop the keys that the changelog, which was read further, now has."""
        covered = self.rows.find_flushed(self.place.shard_id)
        if covered > self._since:
            self._since = covered
            self._written = {key: at for key, at in self._written.items() if at > covered}

    def list_unflushed(self) -> Unflushed:
        """Return the chunks that the changelog may lack, for a slot that opens on these rows."""
        return Unflushed(self._since, self.shard.state.applied, self._written.keys())

    def lack(self, what: str) -> None:
        """Show nothing until ``mend``; the fold since the last write is dropped."""
        logger.info("shard %s: following paused: %s", self.place.shard_id, what)
        self._dropped |= self.shard.indexes.passed_over
        self.leave()
        self._state = LackingLog(what)
        self._on_change(self, 0)

    def mend(self, table_known: Callable[[int], bool]) -> None:
        """Resume from the mark. The catalog, then the changelog, were read since ``lack``."""
        self._dropped = {number for number in self._dropped if not table_known(number)}
        self._state = UnfollowedLog()
        self.shard = shard_at_mark(self.shard.table, self.place, self.rows, self._limits)
        self._since, self._written = self.shard.state.applied, {}
        self.begin(self._topic)
