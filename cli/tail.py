"""Follows every shard of a stream and keeps the order of each row's changes.

A shard is read only after its parents are read to their end. So changes of one primary key come in
commit order, also across splits and merges. There is no order between shards. Positions are the
server's iterators, so an outage loses and repeats nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rowtide.cli.client import ProtocolClient, StreamRecord

__all__ = ["END", "ShardChange", "StreamTail", "stream_of"]

END = 2**63 - 1
"""A time in microseconds after every change: the stream's present end."""


class ShardChange(NamedTuple):
    """One change, and its shard."""

    shard_id: str
    record: StreamRecord


class StreamTail:
    """Reads a stream from ``start_us`` on; None is the oldest change that is kept."""

    def __init__(self, client: ProtocolClient, stream_id: str, start_us: int | None) -> None:
        self._client = client
        self._stream_id = stream_id
        self._iterators: dict[str, str] = {}
        self._read: set[str] = set()
        """Shards that have ended and are read to their end."""
        self._start_us = start_us
        self._open_shards()
        if start_us == END:
            # All changes of later shards come after our start.
            self._start_us = None

    def poll(self) -> Iterator[list[ShardChange]]:
        """Read each shard once; yield the changes of those that had any."""
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
        """Start to read the shards whose parents are read, or no longer listed."""
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
    """Return the id of a table's stream, or None without a stream."""
    streams = client.list_stream(table)
    return streams[0].stream_id if streams else None
