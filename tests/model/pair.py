"""A table of the server and its model, which are to be the same."""

from __future__ import annotations

from typing import Any

from rowtide.client.wire_row import Change, Delete, Increment, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.api.calls import INF_MAX, INF_MIN, get_range, key
from tests.api.test_stream import OFF, enable_stream
from tests.model.difference import same
from tests.model.drafts import Bound, ChangeDraft, ReadDraft, VersionDraft, WriteDraft
from tests.model.followed_stream import FollowedStream
from tests.model.messages import all_found, read_fields
from tests.model.requests import INT64_MAX, Found, Key, Options, Read, Stream, Write
from tests.model.row_model import Rows, reclaim_rows
from tests.model.table_model import TableModel
from tests.model.world import World

__all__ = ["DEFINED", "Pair", "options_message", "stream_message"]

UNKNOWN = 7
"""A number that no key has that the server gave."""
DEFINED: dict[type, Any] = {
    int: pb.DCT_INTEGER,
    float: pb.DCT_DOUBLE,
    bool: pb.DCT_BOOLEAN,
    str: pb.DCT_STRING,
    bytes: pb.DCT_BLOB,
}
WIDE = [f"w{number:02}" for number in range(30)]


def options_message(options: Options) -> pb.TableOptions:
    """Return options as a message."""
    return pb.TableOptions(
        time_to_live=options.ttl_s,
        max_versions=options.max_versions,
        deviation_cell_version_in_sec=options.deviation_s,
    )


def stream_message(stream: Stream | None) -> pb.StreamSpecification:
    """Return what enables a stream, or disables it."""
    return OFF if stream is None else enable_stream(stream.hours, *stream.originals)


class Pair:
    """Makes the table. ``world`` is where it is."""

    def __init__(self, world: World, model: TableModel, *, name: str | None = None) -> None:
        world.tables += 1
        self.world, self.model = world, model
        self.name = name or f"model_{world.tables}"
        self._unnumbered = 0
        self.always = model.stream is not None
        """The stream has every change of the table."""
        self.followed: FollowedStream | None = None
        world.ask(self._create_request())
        if model.stream is not None:
            self.followed = FollowedStream(world, self.name, model)

    def _create_request(self) -> pb.CreateTableRequest:
        model = self.model
        request = pb.CreateTableRequest(
            table_meta=pb.TableMeta(table_name=self.name),
            reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit()),
            table_options=options_message(model.options),
            stream_spec=stream_message(model.stream),
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
        """True if the stream has more than was read."""
        return self.followed is not None and self.followed.unread

    @property
    def hidden(self) -> bool:
        """True if rows hold what nobody sees."""
        return (
            reclaim_rows(self.model.rows, self.model.options, self.world.now_ms) != self.model.rows
        )

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
        known = [number for name, number in self.sort_keys() if name == draft.partition]
        if draft.number == 2 and draft.kind != "DELETE":
            self._unnumbered -= 1  # Two rows of one request are two, also where both are refused.
            return (draft.partition, self._unnumbered), True
        return (
            draft.partition,
            known[draft.number] if draft.number < len(known) else UNKNOWN,
        ), False

    def bulk_write(self, draft: WriteDraft) -> Write:
        """Return the write of a draft as BulkImport has it: no conditions, a key that is known."""
        write = self.write(draft)
        key = (write.key[0], UNKNOWN) if write.assigned else write.key
        return Write(write.kind, key, write.changes)

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

    def sort_keys(self, rows: Rows | None = None) -> list[Key]:
        """Return the keys in the store's order."""
        return sorted(self.model.rows if rows is None else rows)

    def make_bound(self, draft: Bound, *, low: bool) -> tuple[Any, Any]:
        """Return an end of a range; what is not given is infinite."""
        infinite = INF_MIN if low else INF_MAX
        if draft.partition is None:
            return infinite, infinite
        if draft.number is None:
            return draft.partition, infinite
        return draft.partition, self.key_at(draft.partition, draft.number)[1]

    # Changes of the table, and the end.

    def change_stream(self, stream: Stream | None) -> None:
        """End the stream, begin another, or change the one there is."""
        before = self.followed
        if before is not None and stream is None:
            before.follow()
        elif before is not None:
            before.note_expired()
        request = pb.UpdateTableRequest(table_name=self.name, stream_spec=stream_message(stream))
        details = self.world.ask(request).stream_details
        self.always = self.always and stream is not None
        self.model.change_stream(stream)
        same("a stream is enabled", details.enable_stream, stream is not None)
        if stream is None:
            self.followed = None
            same("streams", self.world.client.list_stream(self.name), [])
            if before is not None:
                before.check_ended()
            return
        same("hours", details.expiration_time, stream.hours)
        if before is not None:
            same("the stream", details.stream_id, before.stream_id)
        else:
            self.followed = FollowedStream(self.world, self.name, self.model)

    def delete(self) -> None:
        """Delete the table; its stream ends."""
        self.world.client.delete_table(self.name)
        if self.followed is not None:
            self.followed.check_ended()

    def verify(self) -> None:
        """Compare all rows, then all that is hidden in them, then the fold of the stream."""
        if self.followed is not None:
            self.followed.follow()
        self._verify_rows()
        options = Options(max_versions=1000)
        self.world.ask(
            pb.UpdateTableRequest(table_name=self.name, table_options=options_message(options))
        )
        self.model.options = options
        self._verify_rows()
        rows = self.followed.fold() if self.followed is not None and self.always else None
        if rows is not None:
            same("the fold of the stream", _plain(rows), _plain(self.model.rows))

    def verify_description(self) -> None:
        """Compare what the server says of the table."""
        described, model = self.world.client.describe_table(self.name), self.model
        columns = [(column.name, column.type) for column in described.table_meta.defined_column]
        same("defined", columns, [(name, DEFINED[kind]) for name, kind in model.defined.items()])
        options = described.table_options
        shown = options.time_to_live, options.max_versions, options.deviation_cell_version_in_sec
        same("options", shown, tuple(model.options))
        stream = described.stream_details
        same("stream enabled", stream.enable_stream, model.stream is not None)
        if model.stream is not None and self.followed is not None:
            settings = stream.stream_id, stream.expiration_time
            same("stream", settings, (self.followed.stream_id, model.stream.hours))

    def _verify_rows(self) -> None:
        model, now_ms = self.model, self.world.now_ms
        expected, _, _ = model.range(model.rows, self.sort_keys(), Read(), None, now_ms)
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


def _plain(rows: Rows) -> list[Any]:
    """Return rows in an order of their own."""
    return [
        (k, sorted((name, sorted(v.items())) for name, v in rows[k].items())) for k in sorted(rows)
    ]
