"""How far a consumer is behind its table, computed from its leases and the logs' ends.

Any process can compute it, also while the consumer does not run. Records are counted by
offset. So entries that no reader sees (no-ops, void records) count until the reader has
passed them.
"""

from __future__ import annotations

from typing import NamedTuple

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import START, Leases
from rowtide.client.changes.source import SourceShard
from rowtide.client.changes.start import Start, current_leases, unread_of
from rowtide.core.records.position import decode_position
from rowtide.core.values.errors import LogTrimmed
from rowtide.core.values.key_ranges import Ranges

__all__ = ["Lag", "measure_lag"]

END_US = 2**63 - 1


class Lag(NamedTuple):
    """What is left to read. ``seconds`` is the age of the oldest change that is not
    handled.

    ``unread`` has the key ranges whose rows are still to be read. ``read`` is the read
    part of the table's keys, between 0 and 1. ``left_s`` estimates how long the rest
    takes, -1 if unknown. ``lost`` names shards whose changes were trimmed before they
    were read. Only a rewind helps then.
    """

    begun: bool
    records: int = 0
    seconds: float = 0.0
    unread: Ranges = ()
    lost: tuple[str, ...] = ()
    read: float = 1.0
    left_s: float = -1.0

    @property
    def none(self) -> bool:
        """True if everything was handled."""
        return self.begun and not (self.records or self.unread or self.lost)


async def measure_lag(source: ApiSource, leases: Leases) -> Lag:
    """Return the lag of the consumer of ``leases``; change nothing. Raises ``StoreError``."""
    # Read the rows first, so that the listing has every shard that they name.
    rows = await leases.read(await source.table_name())
    if START not in rows:
        return Lag(begun=False)
    start, known = Start.parse(rows[START].position), current_leases(rows)
    records, seconds, lost = 0, 0.0, []
    unread: list[tuple[bytes, bytes]] = []
    shards = await source.shards()
    for shard in shards:
        lease = known.get(shard.shard_id)
        if lease is not None and lease.ended:
            continue
        unread += lease.pending if lease is not None else unread_of(shard, start, known, shards)
        position = lease.position if lease is not None else start.positions.get(shard.shard_id)
        try:
            count, age_s = await _behind(source, shard, position)
        except LogTrimmed:
            lost.append(shard.shard_id)
            continue
        records += count
        seconds = max(seconds, age_s)
    lag = Lag(True, records, seconds, tuple(sorted(unread)), tuple(lost))
    return await _with_progress(source, lag, start.began_us) if unread else lag


async def _with_progress(source: ApiSource, lag: Lag, began_us: int) -> Lag:
    """Return a lag with the read part, by where keys lie between the first and the last."""
    first, last = await source.first_and_last()
    if not first or not last or first == last:
        return lag._replace(read=0.0)
    whole = last + b"\0"  # The range includes the last key.
    left = sum(
        _place(min(end or whole, whole), first, last) - _place(max(begin, first), first, last)
        for begin, end in lag.unread
        if begin <= last and (not end or end > first)
    )
    read = min(1.0, max(0.0, 1.0 - left))
    passed_s = (source.endpoint.answered_us - began_us) / 1_000_000
    left_s = passed_s * left / read if read > 0.01 else -1.0
    return lag._replace(read=read, left_s=left_s)


def _place(key: bytes, first: bytes, last: bytes) -> float:
    """Return where a key lies between two others, as if keys were spread evenly."""
    shared = next(i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    low, high, at = (_number(bytes_[shared:]) for bytes_ in (first, last, key))
    if key[:shared] != first[:shared]:
        return 0.0 if key < first else 1.0
    return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 1.0


def _number(key: bytes) -> int:
    return int.from_bytes(key[:16].ljust(16, b"\0"), "big")


async def _behind(source: ApiSource, shard: SourceShard, position: str | None) -> tuple[int, float]:
    """Return how many records follow a position, and the age of their first change in s."""
    if not position:
        position = await source.position(shard.shard_id, None)
    end = decode_position(await source.position(shard.shard_id, END_US))
    count = end.offset - decode_position(position).offset
    if count <= 0:
        return 0, 0.0
    page = await source.read(position, limit=1, wait_s=0.0)
    if not page.changes:
        return count, 0.0
    return count, max(0.0, source.endpoint.answered_us - page.changes[0].stamp) / 1_000_000
