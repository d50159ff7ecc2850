"""Following every shard of a stream, in an order that keeps each row's changes in theirs.

A shard is read only once its parents are read to their end, so that for one primary key changes
come in commit order, across splits and merges too. Between shards there is no order. Positions are
the server's iterators, so an outage loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rowtide.cli.client import ProtocolClient, StreamRecord

__all__ = ["END", "ShardChange", "StreamTail", "stream_of"]

END = 2**63 - 1
"""A time in microseconds after every change: the end of the stream as it is now."""


class ShardChange(NamedTuple):
    """One change and the shard that it stands in."""

    shard_id: str
    record: StreamRecord


class StreamTail:
    """Reads a stream from ``start_us`` on; None is the oldest change that is kept."""

    def __init__(self, client: ProtocolClient, stream_id: str, start_us: int | None) -> None:
        self._client = client
        self._stream_id = stream_id
        self._iterators: dict[str, str] = {}
        self._read: set[str] = set()
        """Shards that are closed and read to their end."""
        self._start_us = start_us
        self._open_shards()
        if start_us == END:
            # What begins later was all written after we came.
            self._start_us = None

    def poll(self) -> Iterator[list[ShardChange]]:
        """Ask each shard once; yield what it had, if anything."""
        for shard_id, iterator in list(self._iterators.items()):
            page = self._client.get_stream_record(iterator)
            if page.next_iterator is None:
                del self._iterators[shard_id]
                self._read.add(shard_id)
            else:
                self._iterators[shard_id] = page.next_iterator
            if page.records:
                yield [ShardChange(shard_id, record) for record in page.records]
        if self._read:
            self._open_shards()

    def _open_shards(self) -> None:
        """Take up the shards whose parents are read, or no longer listed."""
        shards = self._client.describe_stream(self._stream_id).shards
        listed = {shard.shard_id for shard in shards}
        for shard in shards:
            parents = {shard.parent_id, shard.parent_sibling_id} & listed
            known = shard.shard_id in self._iterators or shard.shard_id in self._read
            if known or not (parents <= self._read or self._start_us == END):
                continue
            self._iterators[shard.shard_id] = self._client.get_shard_iterator(
                self._stream_id, shard.shard_id, timestamp_us=self._start_us
            )
        self._read &= listed


def stream_of(client: ProtocolClient, table: str) -> str | None:
    """Return the id of a table's stream, or None where it has none."""
    streams = client.list_stream(table)
    return streams[0].stream_id if streams else None
