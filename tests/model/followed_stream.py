"""A table's stream, read from its start, beside the history that the model has of it.

What expired once may be trimmed, and then stays away also where the clock goes back or the stream's
hours are raised: where a reader may begin is a range, and of one record wherever time went forward.
"""

from __future__ import annotations

import time
from typing import Any

from rowtide.cli.client import ServerError, StreamRecord
from tests.model.difference import Difference, same
from tests.model.requests import Entry, Originals, Reclaimed
from tests.model.row_model import Rows, fold, reclaim_rows
from tests.model.table_model import TableModel
from tests.model.world import World

__all__ = ["FollowedStream"]

TRIMMED = "OTSTrimmedDataAccess"
LATE_MS = 1000
TRIM_S_MAX = 5.0
"""How much later than due a position may be refused."""


class FollowedStream:
    """Follows from now on; nothing is in the stream yet."""

    def __init__(self, world: World, table: str, model: TableModel) -> None:
        self.world, self.model = world, model
        (stream,) = world.client.list_stream(table)
        self.stream_id = stream.stream_id
        self.shards = [s.shard_id for s in world.client.describe_stream(self.stream_id).shards]
        same("shards", len(self.shards), len(model.history))
        self.iterators = [world.client.get_shard_iterator(self.stream_id, s) for s in self.shards]
        self.records: list[list[StreamRecord]] = [[] for _ in self.shards]
        self._at = [0] * len(self.shards)
        """How many of the history's records are passed, read or not."""
        self._gone = [0] * len(self.shards)

    @property
    def unread(self) -> bool:
        """True if there is more than was read."""
        return any(len(self._list_entries(n)) > at for n, at in enumerate(self._at))

    def note_expired(self) -> None:
        """Note what may be trimmed from now on: to be called wherever time or hours change."""
        for shard in range(len(self.shards)):
            expired = self.model.count_expired(shard, self.world.now_ms)
            self._gone[shard] = max(self._gone[shard], expired)

    def follow(self, limit: int | None = None) -> None:
        """Read what is new, and compare it with the history; ``limit`` is of one answer."""
        self.note_expired()
        for shard in range(len(self.shards)):
            entries, at = self._list_entries(shard), self._at[shard]
            records = self._new_records(shard, limit)
            if records is None:
                if at >= self._gone[shard]:
                    raise Difference(f"{self.stream_id}: record {at} is refused too early")
                records = self._records_from(shard, None, limit)
                at = len(entries) - len(records)
                self._check_start(shard, at, 0)
            elif at < self.model.count_expired(shard, self.world.now_ms - LATE_MS):
                raise Difference(f"{self.stream_id}: record {at} is shown, though expired")
            self._compare(records, entries[at:])
            self.records[shard] += records
            self._at[shard] = len(entries)

    def seek(self, shard: int, number: int) -> None:
        """Read from the time of a record on."""
        self.note_expired()
        shard %= len(self.shards)
        entries = self._list_entries(shard)
        if not entries:
            return
        from_ms = entries[number % len(entries)].at_ms
        kept = self.iterators[shard]
        records = self._records_from(shard, from_ms)
        self.iterators[shard] = kept
        at = len(entries) - len(records)
        self._check_start(shard, at, sum(entry.at_ms < from_ms for entry in entries))
        self._compare(records, entries[at:])

    def check_ended(self) -> None:
        """Raise ``Difference`` unless all positions are refused."""
        for shard in range(len(self.shards)):
            same("a position of a stream that ended", self._new_records(shard), None)

    def fold(self) -> Rows | None:
        """Return the rows that the records amount to, None where some were not read."""
        rows: Rows = {}
        for shard, entries in enumerate(self.model.history):
            records = iter(self.records[shard])
            if len(self.records[shard]) < self._at[shard]:
                return None
            own: Rows = {}
            for entry in entries:
                if isinstance(entry, Reclaimed):
                    own = reclaim_rows(own, entry.options, entry.now_ms, entry.held)
                    continue
                record = next(records)
                row_key = _values(record.row.key)
                before = own.pop(row_key, None)
                row = fold(before, record.kind, record.row.changes, entry.max_versions)
                if row is not None:
                    own[row_key] = row
            rows |= own
        return rows

    def _list_entries(self, shard: int) -> list[Entry]:
        return [entry for entry in self.model.history[shard] if isinstance(entry, Entry)]

    def _records_from(
        self, shard: int, from_ms: int | None, limit: int | None = None
    ) -> list[StreamRecord]:
        """Return what is there from a time on, or all, and go on behind it.

        A trim that began when the clock was ahead may overtake a position that was just given: the
        next one begins where that trim ended, as soon as the broker has answered its worker.
        """
        from_us = None if from_ms is None else from_ms * 1000
        end_s = time.monotonic() + TRIM_S_MAX
        while time.monotonic() < end_s:
            self.iterators[shard] = self.world.client.get_shard_iterator(
                self.stream_id, self.shards[shard], timestamp_us=from_us
            )
            records = self._new_records(shard, limit)
            if records is not None:
                return records
            if self._gone[shard] == self.model.count_expired(shard, self.world.now_ms):
                break
        raise Difference(f"{self.stream_id}: a position is refused that was just given")

    def _check_start(self, shard: int, at: int, wanted: int) -> None:
        """Raise ``Difference`` unless reading may begin with record ``at`` where asked for one."""
        first = max(wanted, self.model.count_expired(shard, self.world.now_ms))
        last = max(wanted, self._gone[shard])
        if not first <= at <= last:
            range_text = f"{first} to {last}, clock {self.world.now_ms}"
            raise Difference(f"{self.stream_id}: it begins with record {at}, not {range_text}")

    def _new_records(self, shard: int, limit: int | None = None) -> list[StreamRecord] | None:
        """Return what is there from the position on; None where the position is refused."""
        records: list[StreamRecord] = []
        while True:
            try:
                page = self.world.client.get_stream_record(self.iterators[shard], limit=limit)
            except ServerError as error:
                same("a position is refused", (error.code, records), (TRIMMED, []))
                return None
            assert page.next_iterator is not None
            self.iterators[shard] = page.next_iterator
            if not page.records:
                return records
            assert limit is None or len(page.records) <= limit
            records += page.records

    def _compare(self, records: list[StreamRecord], entries: list[Entry]) -> None:
        for record, entry in zip(records, entries, strict=False):
            originals = None if entry.originals is None else (entry.key, entry.originals)
            shown = None
            if record.original is not None:
                assert record.after is not None, "a record of the newest schema"
                assert record.existed is not None
                both = record.original.columns, record.after.columns
                shown = _values(record.original.key), Originals(*both, record.existed)
            same(
                f"a record of the stream {self.stream_id}",
                (record.kind, _values(record.row.key), record.row.changes, shown),
                (entry.kind, entry.key, entry.changes, originals),
            )
        same("how many records the stream has", len(records), len(entries))


def _values(row_key: Any) -> Any:
    return tuple(value for _, value in row_key)
