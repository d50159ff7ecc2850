"""Copies the rows of a shard into the log of its successor in another slot.

While the shard is served its rows are copied as stored. Then the rows that were written
meanwhile are copied, again and again until few are left. Then the shard is sealed and the
rest is copied. The copy is complete only with a record that marks it so. A copy that
fails at any point is discarded: the next one begins in an empty log, so it never depends
on what an earlier one left out. If a broker rejects a record or does not answer, that is
no failure: the record is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator

from rowtide.core.records import record
from rowtide.core.records.record import CopyBody, CopyEntry
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.chunk_merge import encode_deletion
from rowtide.core.rows.fold import Writes
from rowtide.core.shard.shard import ROWS
from rowtide.core.shard.shard_state import options_body
from rowtide.core.shard.source_position import SOURCES, positions_of
from rowtide.core.shard.transaction_id import COMMITS
from rowtide.core.values import key
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.core.values.schema import LOCAL, ShardRange, Table
from rowtide.stream.log.log import Log
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.replay import Range

__all__ = ["CopyLost", "Range", "ShardCopy", "came_back", "is_complete", "row_ranges"]

logger = logging.getLogger(__name__)

COPY_BYTES = 512 * 1024
"""Bytes of stored rows in one record; one chunk is never cut."""

APPEND_S = 10.0
PATIENCE_S = 600.0
"""Time for which one record is sent again: a new copy may take as long."""

RETRY_S = 0.05
RETRY_S_MAX = 1.0


def row_ranges(table: Table, shard: ShardRange) -> list[Range]:
    """Return the key ranges of a shard's rows, and those of its table's local indexes."""
    local = (index.table_id for index in table.indexes if index.kind == LOCAL)
    return [_range(number, shard) for number in (table.table_id, *local)]


def came_back(table: Table, shard: ShardRange, others: Iterable[ShardRange]) -> list[Range]:
    """Return keys that left after a shard ended, and returned with one of ``others``.

    The copy of that shard has the present rows; the former shard's log has only older
    ones.
    """
    later = [o for o in others if o.copied and 0 < shard.sealed_us <= o.floor_us]
    return [keys for other in later for keys in row_ranges(table, other)]


def _range(number: int, shard: ShardRange) -> Range:
    prefix = table_prefix(number)
    high = prefix + shard.end if shard.end else table_prefix(number + 1)
    return prefix + shard.begin, high


class CopyLost(Unavailable):
    """Another writer appended to the copy's log, or the log lost copied records."""


class ShardCopy:
    """Copies from ``source`` into ``log``, which must be empty, under the source's claim."""

    def __init__(
        self, source: ShardOwner, ranges: Iterable[Range], log: Log, counts: Counts
    ) -> None:
        self._source = source
        self._ranges = list(ranges)
        self._log = log
        self._counts = counts
        self._written: set[bytes] = set()
        """Store keys written since ``base`` began, or since the last ``delta``."""
        self.end = 0
        """The log's next offset."""

    async def base(self) -> None:
        """Copy every row, and record from now on which keys are written."""
        start, end = await self._log.bounds()
        if (start, end) != (0, 0):
            raise Unavailable(f"{self._log.name} is not empty")
        self._source.fold.add_write_observer(self._note_writes)
        await self._append(options_body(self._source.shard.state))
        commits = COMMITS, bytes((COMMITS[0] + 1,))
        positions = positions_of(self._source.shard.table.table_id)
        for low, high in (*self._ranges, commits, positions):
            at: bytes | None = low
            while at is not None:
                entries, at = self._slice(at, high)
                await self._append_rows(entries)

    async def delta(self) -> int:
        """Copy the keys that were written since; return their number."""
        written = sorted(self._written)
        self._written.clear()
        count = 0
        for entries in _slice_entries(self._entry(chunk_key) for chunk_key in written):
            await self._append_rows(entries)
            count += len(entries)
        return count

    async def complete(self) -> None:
        """Copy the rest of a sealed shard, and mark the copy as complete."""
        assert self._source.shard.state.seal is not None, "nothing more is written"
        await self.delta()
        await self._append(options_body(self._source.shard.state))
        await self._append_rows([], complete=True)

    def stop(self) -> None:
        """Stop recording which keys are written."""
        self._source.fold.remove_write_observer(self._note_writes)

    def _note_writes(self, writes: Writes) -> None:
        self._written.update(key for key, _ in writes)

    def _slice(self, at: bytes, high: bytes) -> tuple[list[CopyEntry], bytes | None]:
        """Return entries from ``at`` on, and the first key of the next slice, if any."""
        entries: list[CopyEntry] = []
        size = 0
        for chunk_key, value in self._source.rows.scan(at, high):
            if size >= COPY_BYTES:
                return entries, chunk_key
            entries.append(CopyEntry(chunk_key, value))
            size += len(value)
        return entries, None

    def _entry(self, chunk_key: bytes) -> CopyEntry | None:
        """Return the present value of a store key; for a deleted row, its deletion."""
        if chunk_key[:1] not in (ROWS, COMMITS, SOURCES):
            return None
        value = self._source.rows.get(chunk_key)
        if value is None and self._is_first(chunk_key):
            # It was deleted, and that was flushed so long ago that no trace is left.
            value = encode_deletion(self._source.shard.state.stamp)
        return None if value is None else CopyEntry(chunk_key, value)

    def _is_first(self, chunk_key: bytes) -> bool:
        """True if a key is that of a row's first chunk. Others lie within their neighbours."""
        if chunk_key[:1] != ROWS:
            return False
        number = int.from_bytes(chunk_key[1:5], "big")
        table = self._source.shard.table
        columns = len(table.key)
        if number != table.table_id:
            columns = next((len(i.key) for i in table.indexes if i.table_id == number), 0)
        try:
            return len(key.decode(chunk_key[5:])) == columns
        except ValueError:
            return False

    async def _append_rows(self, entries: list[CopyEntry], *, complete: bool = False) -> None:
        shard = self._source.shard
        if entries or complete:
            await self._append(CopyBody(shard.shard_id, shard.state.applied, complete, entries))

    async def _append(self, body: record.Body) -> None:
        """Append one record at the end of the copy. Raises if another writer has appended.

        The record is valid once, at the offset that it names. A repetition at any other
        offset is void.
        """
        # One stamp for all attempts, because an earlier attempt is recognised by its
        # bytes.
        encoded_body, stamp = record.encode_body(body), self._source.shard.state.stamp
        retry_s = RETRY_S
        give_up_s = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            encoded = self._encode_record(encoded_body, stamp)
            try:
                if await self._append_encoded(encoded):
                    self._counts.copied_bytes += len(encoded)
                    return
                continue  # Late repetitions of earlier records are at its offset.
            except CopyLost:
                raise
            except (Unavailable, OutcomeUnknown) as error:
                if asyncio.get_running_loop().time() > give_up_s:
                    raise
                logger.debug("copy into %s waits: %s", self._log.name, error)
            await self._log.disconnect()
            await asyncio.sleep(retry_s)
            retry_s = min(retry_s * 2, RETRY_S_MAX)

    def _encode_record(self, body: bytes, stamp: int) -> bytes:
        """Return a record that names the copy's end as its offset."""
        shard = self._source.shard
        claim = max(shard.claim, 0)
        envelope = record.Envelope(self.end, claim, shard.owner, stamp, record.SINGLE)
        return record.encode_record(envelope, body)

    async def _append_encoded(self, encoded: bytes) -> bool:
        """Append a record and move ``end`` after it. True if it is valid, False if it is void."""
        at = self.end
        base = await self._log.append([(b"", encoded)], deadline_s=APPEND_S)
        if base < at:
            raise CopyLost(f"{self._log.name} ends before what was copied to {at - 1}")
        stands = base == at or await self._has_record(encoded, at, base)
        self.end = base + 1
        return stands

    async def _has_record(self, encoded: bytes, at: int, end: int) -> bool:
        """True if the log has a record between ``at`` and ``end``, where all others are void."""
        while at < end:
            page = await self._log.read(at, bytes_max=2 * COPY_BYTES)
            if not page:
                raise Unavailable(f"{self._log.name} is not read to {end} yet")
            for entry in page:
                if entry.offset < end and record.decode_envelope(entry.value).at == entry.offset:
                    if entry.value != encoded:
                        raise CopyLost(f"{self._log.name} has another writer's records")
                    return True
            at = page[-1].offset + 1
        return False


def _slice_entries(entries: Iterable[CopyEntry | None]) -> Iterator[list[CopyEntry]]:
    """Yield entries in slices that fit a record."""
    found: list[CopyEntry] = []
    size = 0
    for entry in entries:
        if entry is None:
            continue
        found.append(entry)
        size += len(entry.value)
        if size >= COPY_BYTES:
            yield found
            found, size = [], 0
    if found:
        yield found


async def is_complete(log: Log) -> bool:
    """True if the last valid record of a log is the one that completes a copy."""
    start, at = await log.bounds()
    while at > start:
        at -= 1
        entries = await log.read(at, bytes_max=2 * COPY_BYTES)
        last = next((entry for entry in entries if entry.offset == at), None)
        if last is None:
            return False
        envelope, body = record.decode_record(last.value)
        if envelope.at == at:
            return isinstance(body, CopyBody) and body.complete
    return False
