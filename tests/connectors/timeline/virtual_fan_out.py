"""Processes that fan messages out, in virtual time: any of them is killed or paused between any
two steps, while both tables change their shards.

The sink is the real one, over an endpoint whose requests are refused, lost or late. The store table
is in memory. The sync table's shards are real ones with logs in memory. One seed is one run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.client.timeline.inbox_schema import RESERVED, SHARED_MARK
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import SinkBatch, SinkRow, TableShape
from rowtide.connectors.sinks.timeline.sink import FanOutSettings, TimelineSink
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER, RowChange
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.change import DELETE, PUT_ROW, UPDATE, Change, ChangeParts, ChangeTable
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.core.values.key_ranges import holds
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.core.values.schema import Table as TableDefinition
from rowtide.stream.api.source_changes import SourceChanges
from tests.changes.virtual_readers import Reader, Way, World
from tests.changes.virtual_table import Table, range_of
from tests.core.sourced_shards import ASSIGNED, SourcedTable

__all__ = ["FanOutWorld"]

STORE = ChangeTable("im_store", (b"timeline_id", b"sequence_id"))
CONVERSATIONS = [f"c{number}" for number in range(6)]
USERS = [f"{letter}{number}" for letter in "abcdefgh" for number in range(3)]
COPIES_MAX = 12
"""Some conversations of the world have more members."""

SIZES = (1, 2, 5, 9, 20)
TableKey = list[tuple[str, pb.PrimaryKeyType, bool]]

KEYS: Mapping[str, TableKey] = {
    "im_store": [("timeline_id", pb.STRING, False), ("sequence_id", pb.INTEGER, True)],
    "im_members": [("conversation", pb.STRING, False), ("user", pb.STRING, False)],
    "im_sync": [("pk", pb.STRING, False), ("n", pb.INTEGER, True)],
}

Answer = TypeVar("Answer", bound=Message)


@dataclass(slots=True)
class SentMessage:
    """A message of the store table. ``staying`` are the members since it was stored."""

    conversation: str
    id: int
    staying: set[str]
    allowed: set[str]
    """Members when it was stored, and all who joined later."""


class StoreTable(Table):
    """Messages; each is put once. Some are updated and deleted later."""

    def put(self, conversation: str) -> int:
        """Store a message; return its id."""
        id = self.stamp + 1
        self._add(conversation, id, PUT_ROW)
        return id

    def change(self, conversation: str, id: int, *, delete: bool) -> None:
        """Update a message or delete it."""
        self._add(conversation, id, DELETE if delete else UPDATE)

    def _add(self, conversation: str, id: int, kind: Any) -> None:
        self.stamp += 1
        values = [variant.encode(conversation), variant.encode(id)]
        encoded = key_order.encode(values)
        cells = [] if kind == DELETE else [Cell(b"sender", PUT, variant.encode("ann"), 1, 0)]
        shard = next(s for s in self.living() if holds((range_of(s.shard),), encoded))
        change = Change.of(kind, STORE, "", self.stamp, ChangeParts(values, cells, None))
        change.shard, change.sequence = shard.shard.shard_id, len(shard.changes)
        shard.changes.append(change)


class Server:
    """What the sink's endpoint calls: the tables of members and of inboxes."""

    def __init__(self, chance: random.Random) -> None:
        self.sync = SourcedTable(ASSIGNED)
        self.members: dict[str, set[str]] = {name: set() for name in CONVERSATIONS}
        self.marked: set[str] = set()
        self._chance = chance

    def answer(self, operation: str, body: bytes) -> bytes:
        """Answer one request. Raises ``StoreError``."""
        if operation == "DescribeTable":
            return _describe(pb.DescribeTableRequest.FromString(body).table_name)
        if operation == "CreateTable":
            raise Rejected("OTSObjectAlreadyExist", "It is there.")
        if operation == "GetRange":
            return self._read_members(pb.GetRangeRequest.FromString(body))
        if operation == "PutRow":
            row = plainbuffer.decode_row(pb.PutRowRequest.FromString(body).row)
            self.marked.add(str(variant.decode(row.key[0][1])))
            return pb.PutRowResponse(consumed=_consumed(), row=b"").SerializeToString()
        assert operation == "BulkImport", operation
        return self._write(pb.BulkImportRequest.FromString(body))

    def _read_members(self, request: pb.GetRangeRequest) -> bytes:
        start = plainbuffer.decode_row(request.inclusive_start_primary_key)
        name = str(variant.decode(start.key[0][1]))
        users = sorted(self.members[name])
        if name in self.marked:
            users = [SHARED_MARK, *users]
        if start.key[1][1] != variant.V_INF_MIN:
            users = [user for user in users if user >= str(variant.decode(start.key[1][1]))]
        page = users[: min(request.limit, 4)]
        rows = [plainbuffer.encode_row(_member_key(name, user), []) for user in page]
        response = pb.GetRangeResponse(consumed=_consumed(), rows=HEADER + b"".join(rows))
        if len(users) > len(page):
            following = plainbuffer.encode_row(_member_key(name, users[len(page)]), [])
            response.next_start_primary_key = HEADER + following
        return response.SerializeToString()

    def _write(self, request: pb.BulkImportRequest) -> bytes:
        """Write rows as a worker does, each shard's in one group. Some groups are lost."""
        changes = SourceChanges(self.sync.table, [*request.row_forms], _held, Limits())
        parts: dict[str, tuple[list[int], list[ChangeRequest], list[bytes]]] = {}
        for index, row in enumerate(request.rows):
            change = changes.change(row)
            shard = self.sync.shard_of(str(variant.decode(change.key[0][1])))
            indexes, its, positions = parts.setdefault(shard.shard_id, ([], [], []))
            indexes.append(index)
            its.append(change)
            positions.append(row.position)
        results: list[object] = [None] * len(request.rows)
        for shard_id, (indexes, its, positions) in parts.items():
            batch = SourceBatch(request.source, its, positions)
            lost = self._chance.random() < 0.05
            self.sync.append(self.sync.shards[shard_id], batch, lost=lost)
            for index, outcome in zip(indexes, batch.outcomes, strict=True):
                results[index] = OutcomeUnknown("lost") if lost else outcome
        response = pb.BulkImportResponse(table_name=request.table_name)
        for result in results:
            added = response.rows.add(is_ok=isinstance(result, Outcome))
            if isinstance(result, StoreError):
                added.error.code, added.error.message = result.code, result.message
        return response.SerializeToString()


class VirtualEndpoint:
    """A process's connection to the server."""

    def __init__(self, server: Server, way: Way) -> None:
        self._server = server
        self._way = way

    async def call(self, operation: str, request: Message, answer: type[Answer]) -> Answer:
        """See ``Endpoint.call``."""
        return answer.FromString(await self.ask(operation, request.SerializeToString()))

    async def ask(self, operation: str, body: bytes) -> bytes:
        """See ``Endpoint.ask``."""
        return await self._way.ask(lambda: self._server.answer(operation, body))


class FanOutProcess(Reader):
    """One process with the sink."""

    def __init__(self, name: str, world: FanOutWorld) -> None:
        endpoint = VirtualEndpoint(world.server, Way(world.chance, lambda: world.weather))
        self._sink = TimelineSink(
            FanOutSettings("im_members", "im_sync", copies_max=COPIES_MAX),
            ConnectorContext("inbox", "", cast(Endpoint, endpoint)),
        )
        self._is_open = False
        super().__init__(name, world)

    async def _handle(self, batch: Batch) -> None:
        rows = [_sink_row(change) for change in batch]
        while True:
            try:
                if not self._is_open:
                    shape = TableShape(
                        "im_store",
                        (KeyColumn("timeline_id", STRING), KeyColumn("sequence_id", INTEGER)),
                    )
                    await self._sink.open(shape)
                    self._is_open = True
                sink_batch = SinkBatch("im_store", batch.shard_id, rows, batch.covers, batch.stamp)
                assert not await self._sink.apply(sink_batch)
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.3)
            else:
                break


class FanOutWorld(World):
    """A run of ``seed``: messages, members, processes, shards of both tables, and faults."""

    table: StoreTable

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.begin = "oldest"
        self.table = StoreTable()
        self.server = Server(random.Random(f"server {seed}"))
        self.messages: list[SentMessage] = []
        for name in CONVERSATIONS:
            size = self.chance.choice(SIZES)
            self.server.members[name].update(self.chance.sample(USERS, size))

    def start(self) -> None:
        """Start one more process, unless there are enough."""
        if len(self.readers) < 3:
            self._started += 1
            self.readers.append(FanOutProcess(f"r{self._started}", self))

    def _actions(self) -> list[Any]:
        members = [self._join, self._leave]
        shards = [self._split_sync, self._merge_sync, self._move_sync, self._crash_sync]
        return super()._actions() + members + shards + [self._change_message]

    def _write(self) -> None:
        for _ in range(self.chance.randint(1, 12)):
            name = self.chance.choice(CONVERSATIONS)
            id = self.table.put(name)
            members = self.server.members[name]
            self.messages.append(SentMessage(name, id, {*members}, {*members}))

    def _change_message(self) -> None:
        if self.messages:
            message = self.chance.choice(self.messages)
            delete = self.chance.random() < 0.5
            self.table.change(message.conversation, message.id, delete=delete)

    def _split(self) -> None:
        at = key_order.encode([variant.encode(self.chance.choice(CONVERSATIONS))])
        self.table.split(self.chance.choice(self.table.living()), at)

    def _join(self) -> None:
        name, user = self.chance.choice(CONVERSATIONS), self.chance.choice(USERS)
        self.server.members[name].add(user)
        for message in self.messages:
            if message.conversation == name:
                message.allowed.add(user)

    def _leave(self) -> None:
        name = self.chance.choice(CONVERSATIONS)
        if members := sorted(self.server.members[name]):
            user = self.chance.choice(members)
            self.server.members[name].remove(user)
            for message in self.messages:
                if message.conversation == name:
                    message.staying.discard(user)

    def _split_sync(self) -> None:
        self.server.sync.split(self.chance.choice(USERS))

    def _merge_sync(self) -> None:
        self.server.sync.merge(self.chance.choice(USERS))

    def _move_sync(self) -> None:
        self.server.sync.move(self.chance.choice(USERS))

    def _crash_sync(self) -> None:
        self.server.sync.crash(self.chance.choice(USERS))

    async def _settle(self) -> None:
        """All that was paused goes on: everything must be in the inboxes."""
        for reader in self.readers:
            reader.process.thaw()
        self.start()
        self.weather = type(self.weather)(0.0, 0.0, 0.0)
        for _ in range(600):
            await asyncio.sleep(1)
            if not self._missing():
                break
        for reader in self.readers:
            reader.worker.stop()
        _, left = await asyncio.wait([r.task for r in self.readers], timeout=60)
        assert not left, "a process does not stop"
        assert not self._missing()
        self._check()

    def _inboxes(self) -> dict[str, list[tuple[int, str, int]]]:
        """Return each inbox: ids with the conversation and the id of the message."""
        found: dict[str, list[tuple[int, str, int]]] = {}
        for log in self.server.sync.logs.values():
            for value in log:
                envelope, body = record.decode_record(value)
                if isinstance(body, record.PutBody):
                    user, id = map(variant.decode, body.key)
                    columns = {c.name: variant.decode(c.variant) for c in body.cells}
                    assert columns[b"sender"] == "ann"
                    assert id == envelope.stamp
                    row = envelope.stamp, str(columns[b"conversation"]), int(columns[b"message_id"])
                    found.setdefault(str(user), []).append(row)
        return {user: sorted(rows) for user, rows in found.items()}

    def _missing(self) -> list[tuple[str, str, int]]:
        """Return (user, conversation, message) that members lack who were there all the time."""
        there = {
            (user, conversation, id)
            for user, rows in self._inboxes().items()
            for _, conversation, id in rows
        }
        return [
            (user, message.conversation, message.id)
            for message in self.messages
            for user in sorted(message.staying)
            if (user, message.conversation, message.id) not in there
            and (RESERVED + message.conversation, message.conversation, message.id) not in there
        ]

    def _check(self) -> None:
        """Check that each inbox has each message once, in order, and no other's."""
        messages = {(one.conversation, one.id): one for one in self.messages}
        for user, rows in self._inboxes().items():
            found = [(conversation, id) for _, conversation, id in rows]
            assert len(set(found)) == len(found), f"{user}: a message is there twice"
            for name in CONVERSATIONS:
                its = [messages[at] for at in found if at[0] == name]
                if user.startswith(RESERVED):
                    assert not its or user == RESERVED + name
                    assert not its or name in self.server.marked
                    ids = [message.id for message in its]
                else:
                    assert all(user in message.allowed for message in its)
                    ids = [message.id for message in its if user in message.staying]
                assert ids == sorted(ids), f"{user}: {name} is out of order"


def _held(table: Any, _missing: Any, kind: int, row: RowChange) -> ChangeRequest:
    assert isinstance(table, TableDefinition)
    return ChangeRequest(kind, row.key, row.cells)


def _sink_row(change: Change) -> SinkRow:
    values = [variant.decode(value) for value in change.parts.key]
    names = [name.decode() for name in change.table.key_names]
    columns = None if change.kind == DELETE else change.columns
    return SinkRow(
        tuple(zip(names, values, strict=True)),
        change.key_bytes,
        change.stamp,
        cast(Any, columns),
        change.kind,
        None,
        change.sequence,
    )


def _member_key(conversation: str, user: str) -> list[tuple[bytes, bytes]]:
    return [(b"conversation", variant.encode(conversation)), (b"user", variant.encode(user))]


def _consumed() -> pb.ConsumedCapacity:
    return pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=0, write=0))


def _describe(name: str) -> bytes:
    answer = pb.DescribeTableResponse(
        table_options=pb.TableOptions(time_to_live=-1, max_versions=1),
        table_status=pb.ACTIVE,
        reserved_throughput_details=pb.ReservedThroughputDetails(
            capacity_unit=pb.CapacityUnit(read=0, write=0), last_increase_time=0
        ),
    )
    answer.table_meta.table_name = name
    for column, kind, assigned in KEYS[name]:
        added = answer.table_meta.primary_key.add(name=column)
        added.type = kind
        if assigned:
            added.option = pb.AUTO_INCREMENT
    return bytes(answer.SerializeToString())
