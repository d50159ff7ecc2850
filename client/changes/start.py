"""Where a consumer begins, and where it is made to begin again while its readers run.

One row says it for all shards at once, so that it is decided by one conditional update. A rewind
replaces that row by one of the next epoch: rows of shards that are of an earlier epoch count no
more. Readers see it at their next beat and give up what they read. In the new epoch nothing is read
before all have done so, or their leases have ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from rowtide.client.changes.leases import START, Leases, ReaderLease
from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.core.records.position import decode_position, encode_position
from rowtide.core.values.errors import Rejected, invalid
from rowtide.core.values.key_ranges import Ranges, left_of, within

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
"""Where a consumer begins: at a time in Unix microseconds, with the oldest change that is kept,
with what comes from now on, or with the rows as they are, followed by what changes."""


class ShardPlace(NamedTuple):
    """A place in one shard: its sequence number is the next to be read."""

    shard_id: str
    sequence: int


class Start(NamedTuple):
    """Where a consumer began in the shards that there were, and whose rows it was to read.

    ``kept`` are the shards that it went on with where it was, when others were rewound;
    ``began_us`` is when, on the server's clock.
    """

    positions: dict[str, str]
    unread: frozenset[str]
    snapshot: bool
    kept: dict[str, ReaderLease]
    began_us: int = 0

    def text(self) -> str:
        """Return it as it is kept."""
        kept = {name: _kept_text(lease) for name, lease in self.kept.items()}
        return json.dumps([self.positions, sorted(self.unread), self.snapshot, kept, self.began_us])

    @classmethod
    def parsed(cls, text: str) -> Start:
        """Return what was kept."""
        positions, unread, snapshot, kept, began_us = json.loads(text)
        leases = {name: _kept(name, *told) for name, told in kept.items()}
        return cls(positions, frozenset(unread), snapshot, leases, began_us)

    def leases(self, epoch: int) -> dict[str, ReaderLease]:
        """Return what the rows of kept shards would say, had they been read in this epoch."""
        return {name: lease._replace(epoch=epoch) for name, lease in self.kept.items()}


NOWHERE = Start({}, frozenset(), snapshot=False, kept={})
"""Before it is known."""


def current_leases(rows: Mapping[str, ReaderLease]) -> dict[str, ReaderLease]:
    """Return the rows of a consumer's shards as they are in its present epoch."""
    started = rows.get(START)
    if started is None:
        return {}
    found = Start.parsed(started.position).leases(started.epoch)
    return found | {
        name: row for name, row in rows.items() if row.epoch == started.epoch and name != START
    }


def unread_of(
    shard: SourceShard,
    start: Start,
    leases: Mapping[str, ReaderLease],
    shards: Sequence[SourceShard],
) -> Ranges:
    """Return the ranges of a shard without a row of its own whose rows nobody has read yet.

    ``leases`` are the consumer's rows in its present epoch. What its parents' readers left is left.
    """
    if shard.shard_id in start.positions or not start.snapshot:
        return ((shard.begin, shard.end),) if shard.shard_id in start.unread else ()
    parents = [s for s in shards if s.shard_id in shard.parents and s.shard_id in leases]
    whole = shard.begin, shard.end
    unread = left_of(whole, [(parent.begin, parent.end) for parent in parents])
    for parent in parents:
        unread += within(leases[parent.shard_id].pending, whole)
    return tuple(sorted(unread))


async def start_at(source: ChangeSource, begin: Begin) -> Start:
    """Return what a beginning means for the shards that there are."""
    now_us = await source.now_us()
    since_us = begin if isinstance(begin, int) else None if begin == "oldest" else now_us
    shards = await source.shards()
    positions = {s.shard_id: await source.position(s.shard_id, since_us) for s in shards}
    split = {parent for shard in shards for parent in shard.parents}
    snapshot = begin == "rows"
    unread = [name for name in positions if snapshot and name not in split]
    return Start(positions, frozenset(unread), snapshot, {}, now_us)


async def rewind(source: ChangeSource, leases: Leases, to: Begin | ShardPlace) -> None:
    """Let a consumer begin again elsewhere, whether its readers run or not. Raises ``StoreError``.

    A ``ShardPlace`` moves that shard, and has what came of it read again; the others stay where
    their last checkpoints are.
    """
    await leases.open(await source.table_name())
    while True:
        rows = await leases.all()
        started = rows.get(START)
        if isinstance(to, ShardPlace):
            start = await _moved(source, rows, to)
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


async def _moved(source: ChangeSource, rows: dict[str, ReaderLease], to: ShardPlace) -> Start:
    started, known = rows.get(START), current_leases(rows)
    old = Start.parsed(started.position) if started is not None else NOWHERE
    shards = await source.shards()
    if all(shard.shard_id != to.shard_id for shard in shards):
        raise Rejected("OTSObjectNotExist", f"There is no shard '{to.shard_id}' to read any more.")
    end = decode_position(await source.position(to.shard_id, await source.now_us())).offset
    if to.sequence > end:
        # What comes until then would be passed over without a word.
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
    """Return what a shard became, and what that became."""
    found = {name}
    for shard in shards:  # Parents stand before their children.
        if found & set(shard.parents):
            found.add(shard.shard_id)
    return found - {name}


def _kept_text(lease: ReaderLease) -> list[object]:
    pending = [[begin.hex(), end.hex()] for begin, end in lease.pending]
    return [lease.position, pending, lease.ended]


def _kept(name: str, position: str, pending: list[list[str]], ended: bool) -> ReaderLease:
    ranges: Ranges = tuple((bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in pending)
    return ReaderLease(name, position=position, pending=ranges, ended=ended)
