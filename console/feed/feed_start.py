"""Where a feed begins: now, at a time, with the oldest change, or where a token says."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from rowtide.client.changes.source import SourceShard
from rowtide.console.feed.frontier import Frontier
from rowtide.console.feed.stream_reading import StreamReading
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["FeedBegin", "find_start"]

FeedBegin = int | Literal["latest", "oldest", "rows"]
"""A time in Unix microseconds, what comes from now on, the oldest change that is kept, or the rows
as they are, followed by what changes."""


async def find_start(
    reading: StreamReading, begin: FeedBegin, roots: Collection[str] | None = None
) -> Frontier:
    """Return the frontier of a beginning, in all shards or in ``roots`` and their descendants.

    Raises OTSObjectNotExist if one of ``roots`` is not listed.
    """
    now_us = await reading.now_us()
    shards = await reading.list_shards()
    if not shards:
        raise Unavailable(f"Table '{reading.stream.table}' has no shards yet.")
    if roots is not None:
        shards = select_shards(shards, roots)
    if begin in ("latest", "rows"):
        split = {parent for shard in shards for parent in shard.parents}
        found = [
            (shard.shard_id, await reading.find_offset(shard.shard_id, now_us))
            for shard in shards
            if shard.shard_id not in split
        ]
        return Frontier.of(found, now_us)
    return await _find_since(reading, shards, begin if isinstance(begin, int) else None)


def select_shards(shards: Sequence[SourceShard], roots: Collection[str]) -> list[SourceShard]:
    """Return the shards with these names, and their descendants."""
    listed = {shard.shard_id for shard in shards}
    for name in roots:
        if name not in listed:
            raise Rejected(
                "OTSObjectNotExist",
                f"The stream has no shard '{name}'. Its shards: {', '.join(sorted(listed))[:500]}.",
            )
    kept: set[str] = set(roots)
    for shard in shards:
        if kept & set(shard.parents):
            kept.add(shard.shard_id)
    return [shard for shard in shards if shard.shard_id in kept]


async def _find_since(
    reading: StreamReading, shards: Sequence[SourceShard], since_us: int | None
) -> Frontier:
    """Return the shards that have the first changes since a time, where those changes are."""
    split = {parent for shard in shards for parent in shard.parents}
    frontier = Frontier()
    later: set[str] = set()
    for shard in shards:
        name = shard.shard_id
        if any(parent in frontier.offsets or parent in later for parent in shard.parents):
            later.add(name)
            continue
        offset = await reading.find_offset(name, since_us)
        time_us = await _find_first_stamp(reading, name, offset)
        if time_us is not None or name not in split:
            frontier.offsets[name] = offset
            frontier.times[name] = time_us or 0
    return frontier


async def _find_first_stamp(reading: StreamReading, shard: str, offset: int) -> int | None:
    """Return a time after which the first change from an offset on was committed, or will be.

    None if the shard has ended and holds no such change.
    """
    while True:
        position = encode_position(Position(shard, reading.stream.enabled_at_us, offset))
        page = await reading.source.read(position, limit=1, wait_s=0)
        if page.changes:
            return page.changes[0].stamp - 1
        if page.following is None:
            return None
        if page.at_end:
            return reading.known_now_us
        offset = decode_position(page.following).offset
