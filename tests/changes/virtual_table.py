"""A table in memory whose shards split and merge, and a target of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.client.changes.worker import Batch
from rowtide.core.records.change import DELETE, PUT_ROW, ROW, Change, ChangeParts, ChangeTable, Kind
from rowtide.core.records.position import Position, decode_position, encode_position
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.errors import Rejected
from rowtide.core.values.key_ranges import Range, holds

__all__ = ["LoggedShard", "Table", "Target"]

TABLE = ChangeTable("t", (b"pk",))


@dataclass(slots=True)
class LoggedShard:
    """A shard with all changes that it ever had, at their places."""

    shard: SourceShard
    changes: list[Change] = field(default_factory=list)
    ended: bool = False


class Table:
    """Rows are numbers, of each key in the order in which they came; None is a row's end."""

    def __init__(self) -> None:
        self.shards = [LoggedShard(SourceShard("s0", (), b"", b""))]
        self.rows: dict[bytes, tuple[int, int]] = {}
        self.stamp = 0
        self._numbers: dict[bytes, int] = {}

    def write(self, key: bytes, *, delete: bool) -> None:
        """Write a row, or delete it."""
        self.stamp += 1
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        shard = next(s for s in self.living() if holds((range_of(s.shard),), key))
        change = make_change(DELETE if delete else PUT_ROW, key, number, self.stamp)
        change.shard, change.sequence = shard.shard.shard_id, len(shard.changes)
        shard.changes.append(change)
        if delete:
            self.rows.pop(key, None)
        else:
            self.rows[key] = number, self.stamp

    def living(self) -> list[LoggedShard]:
        """Return the shards that take writes, in the order of their keys."""
        return sorted((s for s in self.shards if not s.ended), key=lambda s: s.shard.begin)

    def split(self, parent: LoggedShard, at: bytes) -> None:
        """Split a shard, where the key lies inside of it."""
        begin, end = range_of(parent.shard)
        if begin < at and (not end or at < end):
            self._replace([parent], [(begin, at), (at, end)])

    def merge(self, left: LoggedShard, right: LoggedShard) -> None:
        """Make one shard of two neighbours."""
        self._replace([left, right], [(left.shard.begin, right.shard.end)])

    def _replace(self, parents: Sequence[LoggedShard], ranges: Sequence[Range]) -> None:
        names = tuple(parent.shard.shard_id for parent in parents)
        for parent in parents:
            parent.ended = True
        for begin, end in ranges:
            shard = SourceShard(f"s{len(self.shards)}", names, begin, end)
            self.shards.append(LoggedShard(shard))

    def find_shard(self, name: str) -> LoggedShard:
        """Return a shard."""
        return next(s for s in self.shards if s.shard.shard_id == name)

    def position(self, name: str, since_us: int | None) -> str:
        """Return a position, see ``ChangeSource.position``."""
        offset = sum(change.stamp < (since_us or 0) for change in self.find_shard(name).changes)
        return encode_position(Position(name, 1, offset))

    def read(self, position: str, limit: int) -> ChangePage:
        """Return changes, see ``ChangeSource.read``."""
        at = decode_position(position)
        shard = self.find_shard(at.shard_id)
        changes = shard.changes[at.offset : at.offset + limit]
        following = at.offset + len(changes)
        at_end = following == len(shard.changes)
        if at_end and shard.ended:
            return ChangePage(changes, None, at_end)
        return ChangePage(changes, encode_position(at._replace(offset=following)), at_end)

    def page(self, name: str, begin: bytes, end: bytes, limit: int) -> RowPage:
        """Return rows, see ``ChangeSource.rows``."""
        if self.find_shard(name).ended:
            raise Rejected("OTSObjectNotExist", "the shard has ended")
        keys = sorted(key for key in self.rows if holds(((begin, end),), key))
        rows = [make_change(ROW, key, *self.rows[key]) for key in keys[:limit]]
        return RowPage(rows, self.stamp, keys[limit] if len(keys) > limit else None)


def make_change(kind: Kind, key: bytes, number: int, stamp: int) -> Change:
    """Return a change with a number as its cell."""
    cell = Cell(b"n", PUT, variant.encode(number), 1, 0)
    return Change.of(kind, TABLE, "", stamp, ChangeParts(key_order.decode(key), [cell], None))


def range_of(shard: SourceShard) -> Range:
    """Return the keys that a shard has."""
    return shard.begin, shard.end


class Target:
    """What a sink has: the newest change of each key, and the covered pages."""

    def __init__(self, *, in_order: bool) -> None:
        self._held: dict[bytes, tuple[int, int, bool]] = {}
        self._pages: list[tuple[Range, int]] = []
        self._in_order = in_order
        self.failure = ""

    def apply(self, batch: Batch) -> None:
        """Apply what is newer than the present state."""
        keys = {change.key_bytes for change in batch}
        for change in batch:
            stamp = max(change.stamp, batch.stamp) if batch.covers else change.stamp
            self._take(change, stamp)
        if batch.covers is not None:
            for key in [k for k in self._held if k not in keys and holds((batch.covers,), k)]:
                number, stamp, _ = self._held[key]
                if stamp < batch.stamp:
                    self._held[key] = number, batch.stamp, False
            self._pages.append((batch.covers, batch.stamp))

    def _take(self, change: Change, stamp: int) -> None:
        key, number = change.key_bytes, change.columns["n"]
        assert isinstance(number, int)
        last, held, _ = self._held.get(key, (0, 0, False))
        older = [at for covers, at in self._pages if holds((covers,), key)]
        if stamp <= max(held, *older, 0):
            return
        if self._in_order and number != last + 1:
            self.failure = f"{key!r}: {number} came after {last}"
        self._held[key] = number, stamp, change.kind != DELETE

    def rows(self) -> dict[bytes, int]:
        """Return the rows that there are."""
        return {key: number for key, (number, _, there) in self._held.items() if there}
