"""Where a consumer begins, and how it is made to begin again while its readers run.

One row decides for all shards at once, by one conditional update. A rewind replaces that row by one
of the next epoch: shards' rows of earlier epochs are no longer valid. Readers see the new row at
their next beat and release their shards. In the new epoch no shard is read before all readers have
done so, or their leases have expired.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from rowtide.client.changes.leases import START, Leases, ReaderLease
from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.core.records.position import decode_position, encode_position
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.key_ranges import Ranges, subtract_ranges, within

__all__ = [
    "NOWHERE",
    "Begin",
    "ShardPlace",
    "Start",
    "current_leases",
    "rewind",
    "start_at",
    "unread_of",
]

Begin = int | Literal["oldest", "latest", "rows"]
"""Where a consumer begins: at a time in Unix microseconds, with the oldest change kept, with the
next change, or with the present rows followed by their changes.
"""


class ShardPlace(NamedTuple):
    """A position in one shard: the sequence number of the next change to read."""

    shard_id: str
    sequence: int


class Start(NamedTuple):
    """Where a consumer began: positions by shard, and the shards whose rows to read.

    ``kept`` are the shards that kept their position when others were rewound. ``began_us`` is the
    time on the server's clock.
    """

    positions: dict[str, str]
    unread: frozenset[str]
    snapshot: bool
    kept: dict[str, ReaderLease]
    began_us: int = 0

    def text(self) -> str:
        """Return it as stored text."""
        kept = {name: _lease_fields(lease) for name, lease in self.kept.items()}
        return json.dumps([self.positions, sorted(self.unread), self.snapshot, kept, self.began_us])

    @classmethod
    def parse(cls, text: str) -> Start:
        """Return the start that ``text`` stores."""
        positions, unread, snapshot, kept, began_us = json.loads(text)
        leases = {name: _parse_lease(name, *fields) for name, fields in kept.items()}
        return cls(positions, frozenset(unread), snapshot, leases, began_us)

    def leases(self, epoch: int) -> dict[str, ReaderLease]:
        """Return the rows that the kept shards would have in this epoch."""
        return {name: lease._replace(epoch=epoch) for name, lease in self.kept.items()}


NOWHERE = Start({}, frozenset(), snapshot=False, kept={})
"""Before the start is known."""


def current_leases(rows: Mapping[str, ReaderLease]) -> dict[str, ReaderLease]:
    """Return a consumer's rows by shard, in its present epoch."""
    started = rows.get(START)
    if started is None:
        return {}
    found = Start.parse(started.position).leases(started.epoch)
    return found | {
        name: row for name, row in rows.items() if row.epoch == started.epoch and name != START
    }


def unread_of(
    shard: SourceShard,
    start: Start,
    leases: Mapping[str, ReaderLease],
    shards: Sequence[SourceShard],
) -> Ranges:
    """Return the ranges of a shard without a row whose rows are not read yet.

    ``leases`` are the consumer's rows in its present epoch. What the parents' readers have not read
    is still unread.
    """
    if shard.shard_id in start.positions or not start.snapshot:
        return ((shard.begin, shard.end),) if shard.shard_id in start.unread else ()
    parents = [s for s in shards if s.shard_id in shard.parents and s.shard_id in leases]
    whole = shard.begin, shard.end
    unread = subtract_ranges(whole, [(parent.begin, parent.end) for parent in parents])
    for parent in parents:
        unread += within(leases[parent.shard_id].pending, whole)
    return tuple(sorted(unread))


async def start_at(source: ChangeSource, begin: Begin) -> Start:
    """Return the start that ``begin`` means for the present shards."""
    now_us = await source.now_us()
    since_us = begin if isinstance(begin, int) else None if begin == "oldest" else now_us
    shards = await source.shards()
    positions = {s.shard_id: await source.position(s.shard_id, since_us) for s in shards}
    snapshot = begin == "rows"
    # Also of shards that have ended: they may have changes later than ``now_us``, and their
    # children's rows, which are read instead, include them.
    unread = frozenset(positions) if snapshot else frozenset()
    return Start(positions, unread, snapshot, {}, now_us)


async def rewind(source: ChangeSource, leases: Leases, to: Begin | ShardPlace) -> None:
    """Make a consumer start again from another position, whether its readers run or not.

    A ``ShardPlace`` moves that shard, and makes its descendants be read again. The other shards
    keep their last checkpoints. Raises ``StoreError``.
    """
    await leases.open(await source.table_name())
    while True:
        rows = await leases.all()
        started = rows.get(START)
        if isinstance(to, ShardPlace):
            start = await _rewind_shard(source, rows, to)
        else:
            start = await start_at(source, to)
        if started is None:
            first = ReaderLease(START, position=start.text())
            if await leases.create(first) == first:
                return
            continue
        wanted = started._replace(position=start.text(), epoch=started.epoch + 1)
        now = await leases.change(started, wanted)
        if now == wanted._replace(counter=started.counter + 1):
            return


async def _rewind_shard(
    source: ChangeSource, rows: dict[str, ReaderLease], to: ShardPlace
) -> Start:
    started, known = rows.get(START), current_leases(rows)
    old = Start.parse(started.position) if started is not None else NOWHERE
    shards = await source.shards()
    if all(shard.shard_id != to.shard_id for shard in shards):
        raise Rejected("OTSObjectNotExist", f"There is no shard '{to.shard_id}' to read any more.")
    end = decode_position(await source.position(to.shard_id, await source.now_us())).offset
    if to.sequence > end:
        # The changes up to that sequence number would be skipped silently.
        raise invalid(
            f"The stream of shard '{to.shard_id}' ends before {to.sequence}: the next record there "
            f"will be {end} or later."
        )
    again = _descendants(shards, to.shard_id)
    positions: dict[str, str] = {}
    kept: dict[str, ReaderLease] = {}
    for shard in shards:
        name, lease = shard.shard_id, known.get(shard.shard_id)
        position = lease.position if lease is not None else old.positions.get(name)
        if name == to.shard_id or name in again:
            oldest = decode_position(await source.position(name, None))
            offset = to.sequence if name == to.shard_id else oldest.offset
            position = encode_position(oldest._replace(offset=offset))
        if lease is not None:
            # Rows that were still to be read still are.
            ended = lease.ended and position == lease.position
            kept[name] = ReaderLease(
                name, position=position or "", pending=lease.pending, ended=ended
            )
        elif position is not None:
            positions[name] = position
    listed = {shard.shard_id for shard in shards}
    for parent in {parent for shard in shards for parent in shard.parents} - listed:
        if (lease := known.get(parent)) is not None:
            kept[parent] = lease._replace(counter=0, owner="", wanted="")
    unread = old.unread & positions.keys()
    return Start(positions, unread, old.snapshot, kept, old.began_us)


def _descendants(shards: list[SourceShard], name: str) -> set[str]:
    """Return the shards that came from a shard, directly or indirectly."""
    found = {name}
    for shard in shards:  # Parents come before their children.
        if found & set(shard.parents):
            found.add(shard.shard_id)
    return found - {name}


def _lease_fields(lease: ReaderLease) -> list[object]:
    pending = [[begin.hex(), end.hex()] for begin, end in lease.pending]
    return [lease.position, pending, lease.ended]


def _parse_lease(name: str, position: str, pending: list[list[str]], ended: bool) -> ReaderLease:
    ranges: Ranges = tuple((bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in pending)
    return ReaderLease(name, position=position, pending=ranges, ended=ended)
