"""Finds shards whose rows have more than their log, before an export omits the rows.

A damaged disk may lose the end of a log. The server keeps such a shard closed, because
the rows show what the log lacks. An export takes only the log and the changelog, so the
loss would be invisible afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rowtide.core.shard.mark import decode_mark, entry_digest
from rowtide.stream.log.local.layout import entry_key, entry_of
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.moving.local_source import LocalSource, SourcePartition
from rowtide.stream.moving.manifest import SHARD
from rowtide.stream.shard.row_store import RowStore, StoreFailed

__all__ = ["EntriesLost", "require_entries"]


class EntriesLost(Exception):
    """A shard's log lacks entries that its rows have."""

    def __init__(self, shard_id: str, why: str) -> None:
        super().__init__(f"the log of shard {shard_id} lacks entries that its rows have: {why}")
        self.shard_id = shard_id


def require_entries(store: LogStore, prefix: str, rows: Path) -> None:
    """Raise ``EntriesLost`` if the stores in the folder ``rows`` are ahead of an open log."""
    found = LocalSource(store, prefix).partitions()
    shards = {part.topic.removeprefix(SHARD): part for part in found if SHARD in part.topic}
    for shard_id, mark in _marks(rows):
        if shard_id in shards and (why := _lacking(store, shards[shard_id], mark)):
            raise EntriesLost(shard_id, why)


def _marks(rows: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every shard's mark. Unreadable rows are skipped, because rows are a copy."""
    for path in sorted(rows.glob("[0-9]*")):
        try:
            opened = RowStore(path)
        except StoreFailed:
            continue
        try:
            yield from list(opened.marks())
        except StoreFailed:
            continue
        finally:
            opened.close(flush=False)


def _lacking(store: LogStore, shard: SourcePartition, mark: bytes) -> str:
    """Return which of a mark's entries the log lacks; empty if none."""
    state, bounds = decode_mark(mark), shard.bounds
    if state.applied >= bounds.end:
        return f"it ends at {bounds.end}, they have entry {state.applied}"
    if state.entry is None or state.applied < bounds.start:
        return ""
    [stored] = store.get_many([entry_key(shard.number, state.applied)])
    if stored and entry_digest(entry_of(state.applied, stored).value) == state.entry:
        return ""
    return f"entry {state.applied} is another one"
