"""Fan-out of a timeline table: each new message becomes a row in the inbox of each member.

The rows are written as those of a source (docs/guides/source-writes.md), one source for each shard
of the store table. The rows and the position that they reach are one group of a log. So each inbox
gets each message once, in the order of the store table's log, whatever happens to this process.
Membership is read after the message was read.

Only puts are new messages. An inbox row refers to its message, so updates and deletes need no row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from rowtide.client.endpoint import Endpoint
from rowtide.client.row_values import AUTO_INCREMENT
from rowtide.client.table_requests import TableDescription, create_request, describe
from rowtide.client.timeline.inbox_schema import (
    COPIES_MAX,
    INBOX_CONVERSATION,
    INBOX_MESSAGE,
    INBOX_SENDER,
    inbox_schema,
)
from rowtide.client.timeline.schema import VERSION_DEVIATION_S
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow, SourceRow, TableShape
from rowtide.connectors.runtime.source_writer import SourceWriter
from rowtide.connectors.sinks.timeline.inbox_lookup import users_without
from rowtide.connectors.sinks.timeline.inbox_rows import (
    InboxTable,
    StoredMessage,
    message_of,
    rows_at_once,
    stamp_of,
)
from rowtide.connectors.sinks.timeline.members import MemberTable
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.change import PUT_ROW
from rowtide.core.values.errors import Rejected, invalid

__all__ = ["FanOutSettings", "TimelineSink", "make_sink"]

COPIES_MOST = 100_000

WRITE_S = 2.0
"""How long a write is retried before the connector reports that the sync table is unavailable."""


@dataclass(frozen=True, slots=True)
class FanOutSettings:
    """The tables of members and inboxes. ``sender`` is the field with who sent a message.

    Conversations of more than ``copies_max`` members have one shared inbox. With more, a message
    costs more writes; with less, a reader merges more inboxes.
    """

    members: str
    inbox: str
    sender: str = "sender"
    copies_max: int = COPIES_MAX


class TimelineSink:
    """Fan-out of one store table, for the connector of ``context``."""

    every_change = True
    """A message may be put and updated in one batch: the put says that it is new."""

    changes_only = True
    batch_rows = 500

    def __init__(self, settings: FanOutSettings, context: ConnectorContext) -> None:
        self._settings = settings
        self._connector = context.connector
        self._optional_endpoint = context.endpoint
        self._inbox = InboxTable(settings.inbox, "", "")
        self._members: MemberTable | None = None

    @property
    def _endpoint(self) -> Endpoint:
        assert self._optional_endpoint is not None, "a connector that runs has an endpoint"
        return self._optional_endpoint

    async def open(self, table: TableShape) -> None:
        """Create the sync table if it is missing. Raises ``Rejected`` for a table that can't be
        used.
        """
        settings = self._settings
        _require_key(await self._describe(table.name), [str, AUTO_INCREMENT])
        members = await self._describe(settings.members)
        _require_key(members, [str, str])
        schema = inbox_schema(settings.inbox)
        request = create_request(
            schema.table,
            schema.key_columns(),
            defined={},
            indexes=(),
            max_versions=1,
            time_to_live_s=schema.ttl_s,
            stream_hours=schema.stream_hours,
            version_deviation_s=VERSION_DEVIATION_S,
        )
        try:
            await self._endpoint.call("CreateTable", request, pb.CreateTableResponse)
        except Rejected as error:
            if error.code != "OTSObjectAlreadyExist":
                raise
        inbox = await self._describe(settings.inbox)
        _require_key(inbox, [str, AUTO_INCREMENT])
        user, sequence = inbox.key
        for name in (INBOX_CONVERSATION, INBOX_MESSAGE, INBOX_SENDER):
            if name in inbox.key:
                raise invalid(f"Table '{inbox.name}' has a key column '{name}'; rename it.")
        self._inbox = InboxTable(settings.inbox, user, sequence)
        self._members = MemberTable(
            self._endpoint, settings.members, *members.key, copies_max=settings.copies_max
        )

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Write the rows of new messages. Return those messages that have a refused row."""
        if batch.covers is not None:
            return ()  # Rows of a snapshot are old: only the stream says which messages are new.
        assert self._members is not None, "opened before"
        found = sorted((row for row in batch if row.kind == PUT_ROW), key=_stamp)
        messages = [message_of(row, self._settings.sender) for row in found]
        users = await self._members.users({message.conversation for message in messages})
        in_turn = [message for message in messages if message.row.sequence >= 0]
        reasons: dict[int, str] = {}
        writer = self._writer(f"shard/{batch.shard_id}")
        for rows in rows_at_once(self._inbox, in_turn, users):
            reasons |= await self._write(writer, rows)
        for message in messages:
            if message.row.sequence < 0:
                inboxes = users[message.conversation]
                reasons |= await self._write(writer, self._inbox.rows(message, inboxes))
                reasons |= await self._write_missing(message, inboxes)
        return [
            Refused(message.row, reasons[message.row.stamp])
            for message in messages
            if message.row.stamp in reasons
        ]

    async def close(self) -> None:
        """Do nothing: the connections belong to the process."""

    async def _write(self, writer: SourceWriter, rows: Sequence[SourceRow]) -> dict[int, str]:
        """Write rows. Return the stamps of messages with a refused row, and the reasons."""
        reasons: dict[int, str] = {}
        while rows:
            refusal = await writer.write(self._inbox.name, rows)
            if refusal is None:
                break
            # Its message is parked. What is durable of the others is skipped now.
            stamp = stamp_of(refusal.row.position)
            reasons[stamp] = refusal.message
            rows = [row for row in rows if stamp_of(row.position) != stamp]
        return reasons

    async def _write_missing(self, message: StoredMessage, users: Sequence[str]) -> dict[int, str]:
        """Write the rows that a parked message still lacks. Return what ``_write`` returns.

        The source of its shard is past them, so the message is a source of its own.
        """
        missing = await users_without(self._endpoint, self._inbox, message, users)
        digest = hashlib.sha256(message.conversation.encode()).hexdigest()[:16]
        writer = self._writer(f"message/{message.id}-{digest}")
        return await self._write(writer, self._inbox.rows(message, missing))

    def _writer(self, part: str) -> SourceWriter:
        source = f"timeline/{self._connector}/{part}"
        return SourceWriter(self._endpoint, source, deadline_s=WRITE_S)

    async def _describe(self, table: str) -> TableDescription:
        request = pb.DescribeTableRequest(table_name=table)
        try:
            answer = await self._endpoint.call("DescribeTable", request, pb.DescribeTableResponse)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            raise Rejected(error.code, f"There is no table '{table}'.") from error
        return describe(answer)


def _require_key(table: TableDescription, kinds: Sequence[object]) -> None:
    """Raise ``Rejected`` unless a table's key has columns of these types."""
    if [*table.key.values()] != kinds:
        wanted = " and ".join("STRING" if kind is str else "AUTO_INCREMENT" for kind in kinds)
        raise invalid(
            f"Table '{table.name}' must have a key of two columns, {wanted}, for the fan-out. "
            f"It has {', '.join(table.key)}."
        )


def _stamp(row: SinkRow) -> int:
    return row.stamp


def make_sink(fields: Fields, surroundings: ConnectorContext) -> TimelineSink:
    """Return the sink that settings describe."""
    settings = FanOutSettings(
        fields.text("members"),
        fields.text("inbox"),
        fields.text("sender", "sender"),
        fields.integer("copies_max", COPIES_MAX, least=0, most=COPIES_MOST),
    )
    return TimelineSink(settings, surroundings)
