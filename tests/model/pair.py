"""A table of the server and its model, which are to be the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rowtide.cli.client import StreamRecord
from rowtide.cli.wire_row import Change, Delete, Increment, Put
from rowtide.core import variant
from rowtide.core.wire import ots_pb2 as pb
from tests.api.calls import INF_MAX, INF_MIN, get_range, key
from tests.api.test_stream import enabled
from tests.model.drafts import Bound, ChangeDraft, ReadDraft, VersionDraft, WriteDraft
from tests.model.messages import all_found, read_fields
from tests.model.requests import INT64_MAX, Entry, Found, Key, Options, Read, Reclaimed, Write
from tests.model.table_model import Rows, TableModel, folded, reclaimed
from tests.model.world import World

__all__ = ["Difference", "Pair", "options_message", "same"]

UNKNOWN = 7
"""A number that no key has that the server gave."""
WIDE = [f"w{number:02}" for number in range(30)]


class Difference(AssertionError):
    """The server answered otherwise than the model."""


def same(what: str, server: object, model: object) -> None:
    """Raise ``Difference`` unless both print the same: 1, 1.0 and True are three values."""
    if repr(server) != repr(model):
        raise Difference(f"{what}:\n  server: {server!r}\n  model:  {model!r}")


def options_message(options: Options) -> pb.TableOptions:
    """Return options as a message."""
    return pb.TableOptions(
        time_to_live=options.ttl_s,
        max_versions=options.max_versions,
        deviation_cell_version_in_sec=options.deviation_s,
    )


class Pair:
    """Makes the table. ``world`` is where it is."""

    def __init__(self, world: World, model: TableModel) -> None:
        world.tables += 1
        self.world, self.model = world, model
        self.name = f"model_{world.tables}"
        world.ask(self._create_request())
        (stream,) = world.client.list_stream(self.name)
        shards = world.client.describe_stream(stream.stream_id).shards
        self.iterators = [
            world.client.get_shard_iterator(stream.stream_id, shard.shard_id) for shard in shards
        ]
        same("shards", len(shards), len(model.history))
        self.records: list[list[StreamRecord]] = [[] for _ in shards]
        self._unnumbered = 0

    def _create_request(self) -> pb.CreateTableRequest:
        model = self.model
        request = pb.CreateTableRequest(
            table_meta=pb.TableMeta(table_name=self.name),
            reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit()),
            table_options=options_message(model.options),
            stream_spec=enabled(168, *model.originals),
        )
        request.table_meta.primary_key.add(name="PK1", type=pb.STRING)
        second = request.table_meta.primary_key.add(name="PK2", type=pb.INTEGER)
        if model.auto:
            second.option = pb.AUTO_INCREMENT
        if model.split is not None:
            point = variant.encode(model.split)
            request.partitions.add(begin=variant.V_INF_MIN, end=point)
            request.partitions.add(begin=point, end=variant.V_INF_MAX)
        return request

    @property
    def unread(self) -> bool:
        """Say whether the stream has more than was read."""
        told = sum(isinstance(e, Entry) for entries in self.model.history for e in entries)
        return told > sum(len(records) for records in self.records)

    @property
    def hidden(self) -> bool:
        """Say whether rows hold what nobody sees."""
        return reclaimed(self.model.rows, self.model.options, self.world.now_ms) != self.model.rows

    # From drafts to requests.

    def write(self, draft: WriteDraft) -> Write:
        """Return the write of a draft."""
        row_key, assigned = self._write_key(draft)
        kept = [c for c in draft.changes if draft.kind == "UPDATE" or c.op == "put"]
        changes: list[Change] = []
        for change in kept if draft.kind != "DELETE" else ():
            added = {c.name for c in changes if isinstance(c, Increment)}
            taken = {c.name for c in changes} if change.op == "add" else added
            if change.column not in taken:
                changes.append(self._change(row_key, change))
        if draft.wide and draft.kind != "DELETE":
            names = {c.name for c in changes}
            changes += [Put(name, "w" * 2000, None) for name in WIDE if name not in names]
        if draft.kind == "UPDATE" and not changes:
            changes = [Put("c1", 0)]
        returns: tuple[str, ...] | None = () if assigned or draft.returns == "key" else None
        if draft.returns == "modified" and not assigned:
            returns = tuple(c.name for c in changes if isinstance(c, Increment)) or None
        expect = draft.expect if not assigned else "IGNORE"
        return Write(
            draft.kind, row_key, tuple(changes), expect, draft.condition, returns, assigned
        )

    def _write_key(self, draft: WriteDraft) -> tuple[Key, bool]:
        """Return the key; in the second table the last number stands for a new one."""
        if not self.model.auto:
            return (draft.partition, draft.number), False
        known = [number for name, number in self.ordered() if name == draft.partition]
        if draft.number == 2 and draft.kind != "DELETE":
            self._unnumbered -= 1  # Two rows of one request are two, also where both are refused.
            return (draft.partition, self._unnumbered), True
        return (
            draft.partition,
            known[draft.number] if draft.number < len(known) else UNKNOWN,
        ), False

    def _change(self, row_key: Key, draft: ChangeDraft) -> Change:
        version = None
        if draft.version is not None:
            version = self.version(draft.version, row_key, draft.column)
        if draft.op == "put":
            return Put(draft.column, draft.value, version)
        if draft.op == "delete":
            return Delete(draft.column, version)
        assert isinstance(draft.value, int)
        return Increment(draft.column, draft.value)

    def version(self, draft: VersionDraft, row_key: Key, column: str) -> int:
        """Return a version: one that is stored, or one at a distance from the clock."""
        stored = sorted(self.model.rows.get(row_key, {}).get(column, {}))
        if draft.stored is not None and stored:
            return stored[draft.stored % len(stored)]
        return max(0, self.world.now_ms + draft.distance_ms)

    def reading(self, draft: ReadDraft, row_key: Key) -> Read:
        """Return the read of a draft."""
        start = end = None
        if draft.start is not None:
            start = self.version(draft.start, row_key, "c1")
        if draft.end is not None:
            end = self.version(draft.end, row_key, "c1")
        if draft.exact and start is not None:
            end = start + 1
        if start is not None and end is not None and start > end:
            start, end = end, start
        return Read(
            start or 0,
            INT64_MAX if end is None else end,
            draft.newest or INT64_MAX,
            draft.columns,
            draft.start_column,
            draft.end_column,
            draft.filter,
        )

    def key_at(self, partition: str, number: int) -> Key:
        """Return a key, there or not."""
        draft = WriteDraft(0, "DELETE", partition, number, [], "IGNORE", None, "", False)
        return self._write_key(draft)[0]

    def ordered(self, rows: Rows | None = None) -> list[Key]:
        """Return the keys in the store's order."""
        return sorted(self.model.rows if rows is None else rows)

    def bound(self, draft: Bound, *, low: bool) -> tuple[Any, Any]:
        """Return an end of a range; what is not given is infinite."""
        infinite = INF_MIN if low else INF_MAX
        if draft.partition is None:
            return infinite, infinite
        if draft.number is None:
            return draft.partition, infinite
        return draft.partition, self.key_at(draft.partition, draft.number)[1]

    # The stream and the end.

    def follow(self) -> None:
        """Read what is new in the stream, and compare it with the history."""
        for shard, entries in enumerate(self.model.history):
            told = [entry for entry in entries if isinstance(entry, Entry)]
            records = self.records[shard]
            for record in self._new_records(shard):
                if len(records) == len(told):
                    raise Difference(f"{self.name}: the stream has one too many: {record!r}")
                entry = told[len(records)]
                original = None if entry.original is None else (entry.key, entry.original)
                shown = None
                if record.original is not None:
                    shown = _values(record.original.key), record.original.columns
                same(
                    "a record of the stream",
                    (record.kind, _values(record.row.key), record.row.changes, shown),
                    (entry.kind, entry.key, entry.changes, original),
                )
                records.append(record)
            same("how many records the stream has", len(records), len(told))

    def _new_records(self, shard: int) -> Iterator[StreamRecord]:
        while True:
            page = self.world.client.get_stream_record(self.iterators[shard])
            assert page.next_iterator is not None
            self.iterators[shard] = page.next_iterator
            if not page.records:
                return
            yield from page.records

    def verify(self) -> None:
        """Compare all rows, then all that is hidden in them, then the fold of the stream."""
        self.follow()
        self._verify_rows()
        options = Options(max_versions=1000)
        self.world.ask(
            pb.UpdateTableRequest(table_name=self.name, table_options=options_message(options))
        )
        self.model.options = options
        self._verify_rows()
        same("the fold of the stream", _plain(self._folded()), _plain(self.model.rows))

    def _verify_rows(self) -> None:
        model, now_ms = self.model, self.world.now_ms
        expected, _, _ = model.range(model.rows, self.ordered(), Read(), None, now_ms)
        low, high = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
        fields = read_fields(Read())
        same("rows", self._all(get_range(self.name, low, high, **fields)), expected)
        backward = get_range(self.name, high, low, direction=pb.BACKWARD, **fields)
        same("rows backward", self._all(backward)[::-1], expected)

    def _all(self, request: pb.GetRangeRequest) -> list[Found]:
        rows: list[Found] = []
        while True:
            answer = self.world.ask(request)
            rows += all_found(answer.rows)
            if not answer.next_start_primary_key:
                return rows
            request.inclusive_start_primary_key = answer.next_start_primary_key

    def _folded(self) -> Rows:
        """Return the rows that the stream's records amount to."""
        rows: Rows = {}
        for shard, entries in enumerate(self.model.history):
            records = iter(self.records[shard])
            own: Rows = {}
            for entry in entries:
                if isinstance(entry, Reclaimed):
                    own = reclaimed(own, entry.options, entry.now_ms)
                    continue
                record = next(records)
                row_key = _values(record.row.key)
                write = Write(record.kind, row_key, record.row.changes)
                row = folded(own.pop(row_key, None), write, entry.max_versions)
                if row is not None:
                    own[row_key] = row
            rows |= own
        return rows


def _plain(rows: Rows) -> list[Any]:
    """Return rows in an order of their own."""
    return [
        (k, sorted((name, sorted(v.items())) for name, v in rows[k].items())) for k in sorted(rows)
    ]


def _values(row_key: Any) -> Any:
    return tuple(value for _, value in row_key)
