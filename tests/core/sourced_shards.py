"""A table whose shards are split, merged and moved while sources write, driven step by step.

Rows have a partition key of one letter; a source's row number ``i`` writes ``i`` into column ``v``
and the source's name into ``s``. In ``ASSIGNED`` each row is a new one, whose second key column the
shard assigns. What the logs hold is read from their records, by nothing that the shards remember.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.records import record
from rowtide.core.records.record import CopyEntry
from rowtide.core.rows.mutation import DELETE, PUT, ChangeRequest
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.values import key, variant
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, ShardRange, Table, TableOptions
from tests.core.shard_model import NOW_US, Store

__all__ = ["ASSIGNED", "Kept", "Row", "SourcedTable", "change_of", "position_of"]

TABLE = Table(
    "i", "t", 1, (KeyColumn("pk", STRING),), TableOptions(max_versions=3), None, 0, 0, 1, 1, ()
)
ASSIGNED = replace(TABLE, key=(KeyColumn("pk", STRING), KeyColumn("n", INTEGER, True)))


@dataclass(frozen=True, slots=True)
class Row:
    """A row that a source gives. ``kind`` is PUT, UPDATE or DELETE."""

    name: str
    kind: int = PUT
    time_ms: int = 1000


@dataclass(frozen=True, slots=True)
class Kept:
    """A source's row as a log has it."""

    source: str
    number: int
    name: str
    stamp: int


def position_of(number: int) -> bytes:
    """Return the position of a source's row."""
    return number.to_bytes(2, "big")


def change_of(source: str, number: int, row: Row) -> ChangeRequest:
    """Return the change that a row asks for."""
    cells = [put_cell(b"s", variant.encode(source), None)]
    cells.append(put_cell(b"v", variant.encode(number), None))
    at = [(b"pk", variant.encode(row.name))]
    return ChangeRequest(row.kind, at, [] if row.kind == DELETE else cells, time_ms=row.time_ms)


class SourcedTable:
    """Shards by id, each with its log; a store for each of two slots."""

    def __init__(self, table: Table = TABLE) -> None:
        first = ShardRange("s1", 0)
        self.table = replace(table, shards=(first,))
        self.every: dict[str, ShardRange] = {"s1": first}
        """Every shard there ever was."""
        self.stores = [Store(), Store()]
        self.logs: dict[str, list[bytes]] = {"s1": []}
        self.shards = {"s1": self._open_shard(first)}
        self._now_us = NOW_US

    def _open_shard(self, shard: ShardRange) -> Shard:
        state = ShardState(self.table.options, applied=len(self.logs[shard.shard_id]) - 1)
        state.stamp = max(map(_stamp, self.logs[shard.shard_id]), default=shard.floor_us)
        opened = Shard(shard.shard_id, self.table, self.stores[shard.slot], state, limits=Limits())
        opened.adopt_claim(1, b"ownerid8")
        return opened

    # Writing.

    def parts(self, rows: Sequence[tuple[int, Row]]) -> dict[str, list[tuple[int, Row]]]:
        """Divide a source's rows by shard."""
        parts: dict[str, list[tuple[int, Row]]] = {}
        for number, row in rows:
            parts.setdefault(self.shard_of(row.name).shard_id, []).append((number, row))
        return parts

    def shard_of(self, name: str) -> ShardRange:
        """Return the shard of a row."""
        at = key.encode([variant.encode(name)])
        return next(s for s in self.table.shards if s.begin <= at and (not s.end or at < s.end))

    def write(
        self,
        source: str,
        shard_id: str,
        rows: Sequence[tuple[int, Row]],
        *,
        lost: bool = False,
    ) -> SourceBatch:
        """Write a source's rows of one shard; ``lost`` before they come to the log."""
        shard = self.shards[shard_id]
        changes = [self._change(source, number, row) for number, row in rows]
        batch = SourceBatch(source, changes, [position_of(number) for number, _ in rows])
        self.append(shard, batch, lost=lost)
        assert lost or not any(isinstance(answer, StoreError) for answer in batch.outcomes)
        return batch

    def append(self, shard: Shard, batch: SourceBatch, *, lost: bool = False) -> None:
        """Evaluate a batch and append it to the log, unless it is ``lost`` before."""
        evaluated = batch.evaluate(shard, self._tick())
        if lost:
            shard.discard()
            return
        log = self.logs[shard.shard_id]
        base = len(log)
        log += [shard.encode_record(part, base + at) for at, part in enumerate(evaluated)]
        if evaluated:
            self._apply(shard, shard.confirm(evaluated, base))

    def _change(self, source: str, number: int, row: Row) -> ChangeRequest:
        if self.table.auto_increment_index is None:
            return change_of(source, number, row)
        change = change_of(source, number, replace(row, kind=PUT))
        change.key.append((b"n", variant.V_AUTO_INCREMENT))
        change.time_ms = None
        return change

    def _apply(self, shard: Shard, writes: list[tuple[bytes, bytes | None]]) -> None:
        store = self.stores[self.every[shard.shard_id].slot]
        store.write(writes)
        shard.settle_writes(writes)

    def _tick(self) -> int:
        self._now_us += 1000
        return self._now_us

    # Shards that change.

    def split(self, name: str) -> None:
        """Split the shard of a row there, unless it begins there."""
        parent, at = self.shard_of(name), key.encode([variant.encode(name)])
        if parent.begin != at:
            self._reshape(
                [parent], [(parent.slot, parent.begin, at), (parent.slot, at, parent.end)]
            )

    def merge(self, name: str) -> None:
        """Merge the shard of a row with the next one, if they are in one slot."""
        parent = self.shard_of(name)
        following = next((s for s in self.table.shards if s.begin == parent.end), None)
        if following is not None and parent.end and following.slot == parent.slot:
            self._reshape([parent, following], [(parent.slot, parent.begin, following.end)])

    def move(self, name: str) -> None:
        """Move the shard of a row to the other slot: what it has is copied into its log."""
        parent = self.shard_of(name)
        here = self.stores[parent.slot].chunks
        self._reshape([parent], [(1 - parent.slot, parent.begin, parent.end)])
        child = self.shard_of(name)
        low, high = b"r\0\0\0\1" + parent.begin, b"r\0\0\0\1" + (parent.end or b"\xff")
        wanted = [k for k in sorted(here) if low <= k < high or k[:1] == b"s"]
        copied = [CopyEntry(k, here[k]) for k in wanted]
        shard = self.shards[child.shard_id]
        body = record.CopyBody(parent.shard_id, 0, True, copied)
        envelope = record.Envelope(0, 1, b"ownerid8", self._tick(), record.SINGLE)
        self.logs[child.shard_id].append(record.encode_record(envelope, record.encode_body(body)))
        self._apply(shard, shard.replay(0, self.logs[child.shard_id][0]).writes)
        for chunk_key in wanted:
            if chunk_key[:1] == b"r":
                del here[chunk_key]  # As the sweep does; positions stay.

    def _reshape(
        self, parents: Sequence[ShardRange], places: Sequence[tuple[int, bytes, bytes]]
    ) -> None:
        names = tuple(parent.shard_id for parent in parents)
        children = [
            ShardRange(f"s{len(self.every) + 1 + at}", slot, begin, end, names, self._tick())
            for at, (slot, begin, end) in enumerate(places)
        ]
        self.every |= {child.shard_id: child for child in children}
        left = [shard for shard in self.table.shards if shard not in parents]
        shards = tuple(sorted([*left, *children], key=lambda shard: shard.begin))
        self.table = replace(self.table, shards=shards)
        for parent in parents:
            del self.shards[parent.shard_id]
        for shard in self.shards.values():
            shard.retable(self.table)
        for child in children:
            self.logs[child.shard_id] = []
            self.shards[child.shard_id] = self._open_shard(child)

    # Crashes.

    def crash(self, name: str) -> None:
        """Open the shard of a row anew, on what its store has."""
        shard = self.shard_of(name)
        self.shards[shard.shard_id] = self._open_shard(shard)

    def lose_disks(self) -> None:
        """Build every store from the logs alone."""
        self.stores = [Store(), Store()]
        for shard_id, shard in self.every.items():
            replaying = Shard(
                shard_id,
                self.table,
                self.stores[shard.slot],
                ShardState(self.table.options),
                limits=Limits(),
            )
            for offset, value in enumerate(self.logs[shard_id]):
                self._apply(replaying, replaying.replay(offset, value).writes)
        self.shards = {s.shard_id: self._open_shard(s) for s in self.table.shards}

    # Looking.

    def list_rows(self) -> list[Kept]:
        """Return every source's rows that are in the logs; deletes are none."""
        found: list[Kept] = []
        for log in self.logs.values():
            for value in log:
                envelope, body = record.decode_record(value)
                if isinstance(body, record.PutBody | record.UpdateBody):
                    cells = {c.name: variant.decode(c.variant) for c in body.cells}
                    name = str(variant.decode(body.key[0]))
                    number = int(cells[b"v"])
                    found.append(Kept(str(cells[b"s"]), number, name, envelope.stamp))
        return found

    def versions(self, name: str) -> list[int]:
        """Return the versions that the logs gave a row, in the order of their commits."""
        found: list[tuple[int, int]] = []
        for log in self.logs.values():
            for value in log:
                envelope, body = record.decode_record(value)
                if not isinstance(body, record.PutBody | record.UpdateBody):
                    continue
                if variant.decode(body.key[0]) == name:
                    found += [(envelope.stamp, c.version_ms or 0) for c in body.cells[:1]]
        return [version for _, version in sorted(found)]


def _stamp(value: bytes) -> int:
    return record.decode_envelope(value).stamp
