"""Writes a slot's changed rows to the changelog, lazily, so that logs can be trimmed.

A flush is one Kafka transaction: the chunks of every row changed since the last one, and per shard
the mark "complete up to here". Chunks may be newer than the mark beside them, because serving goes
on while a flush gathers; their stamps say so, and a replay from the mark passes them over.

A deleted row is written as a stamped delete first. Once a mark has passed it, a later flush sends
the tombstone that lets compaction remove it, and it goes from the local store too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rowtide.core.chunk import DELETED, header, row_end, row_key
from rowtide.core.mark import encode_mark, mark_key
from rowtide.stream.kafka_changelog import ChangelogWriter
from rowtide.stream.row_store import RowStore
from rowtide.stream.shard_owner import ShardOwner

__all__ = ["ChangelogFlush", "tombstone_stamp"]

logger = logging.getLogger(__name__)

Entry = tuple[bytes, bytes | None, list[tuple[str, bytes]]]

STAMP_HEADER = "stamp"

SLICE = 500
"""Rows gathered before other work gets its turn on the event loop."""


@dataclass(slots=True)
class Gathered:
    """What one flush writes, and what to remember once it stands."""

    entries: list[Entry] = field(default_factory=list)
    flushed: dict[str, int] = field(default_factory=dict)
    taken: dict[str, set[bytes]] = field(default_factory=dict)
    commits: dict[str, set[bytes]] = field(default_factory=dict)
    graves: dict[bytes, int] = field(default_factory=dict)
    buried: list[bytes] = field(default_factory=list)


def tombstone_stamp(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return the commit stamp of the delete that a tombstone finishes."""
    return next((int(value) for name, value in headers if name == STAMP_HEADER), 0)


class ChangelogFlush:
    """The flushes of one slot."""

    def __init__(self, writer: ChangelogWriter, rows: RowStore) -> None:
        self._writer = writer
        self._rows = rows
        self._graves: dict[bytes, int] = {}
        """Chunk keys of deleted rows that a mark has passed, with their stamps."""

    async def flush(self, shards: Iterable[ShardOwner], now_s: float) -> int:
        """Write what changed; return the number of entries.

        Raises what ``ChangelogWriter.flush`` raises; the rows stay dirty then.
        """
        gathered = Gathered()
        by_id = {shard.shard.shard_id: shard for shard in shards}
        try:
            for shard in by_id.values():
                await self._gather(shard, gathered)
            self._gather_graves(gathered)
            if not gathered.entries:
                return 0
            position = await self._writer.flush(gathered.entries)
        except BaseException:
            for shard_id, keys in gathered.taken.items():
                by_id[shard_id].dirty |= keys
            for shard_id, keys in gathered.commits.items():
                by_id[shard_id].commits |= keys
            raise
        self._rows.set_changelog_position(position, now_s, flushed=gathered.flushed)
        self._rows.write([(key, None) for key in gathered.buried if self._is_grave(key)])
        self._graves = gathered.graves
        return len(gathered.entries)

    async def remove(self, keys: Sequence[bytes], now_s: float) -> None:
        """Remove what nobody needs any more from the changelog, then from the rows.

        These are chunks of a dropped table, or commits that no client asks for again.
        """
        position = await self._writer.flush([(key, None, []) for key in keys])
        self._rows.write([(key, None) for key in keys])
        self._rows.set_changelog_position(position, now_s)

    async def _gather(self, owner: ShardOwner, into: Gathered) -> None:
        """Add one shard's dirty rows and its mark as of before they were read."""
        shard = owner.shard
        if self._rows.flushed(shard.shard_id) >= shard.state.applied and not owner.dirty:
            return
        mark, applied = encode_mark(shard.state), shard.state.applied
        keys, owner.dirty = owner.dirty, set()
        into.taken[shard.shard_id] = keys
        for number, log_key in enumerate(sorted(keys)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            self._gather_row(row_key(shard.table.table_id, log_key), into)
        commits, owner.commits = owner.commits, set()
        into.commits[shard.shard_id] = commits
        into.entries += [(store_key, self._rows.get(store_key), []) for store_key in commits]
        into.flushed[shard.shard_id] = applied
        into.entries.append((mark_key(shard.shard_id), mark, []))

    def _gather_row(self, first_key: bytes, into: Gathered) -> None:
        first = self._rows.get(first_key)
        if first is None:
            return
        head = header(first)
        into.entries.append((first_key, first, []))
        if head[1] & DELETED:
            into.graves[first_key] = head[4]
        if head[2]:
            later = self._rows.scan(first_key + b"\0", row_end(first_key))
            into.entries += [(key, value, []) for key, value in later]

    def _gather_graves(self, into: Gathered) -> None:
        """Add the tombstones of rows whose stamped delete an earlier flush has written."""
        for key, stamp in self._graves.items():
            if key not in into.graves and self._is_grave(key):
                into.entries.append((key, None, [(STAMP_HEADER, b"%d" % stamp)]))
                into.buried.append(key)

    def _is_grave(self, key: bytes) -> bool:
        value = self._rows.get(key)
        stamp = self._graves.get(key)
        return value is not None and bool(header(value)[1] & DELETED) and header(value)[4] == stamp
