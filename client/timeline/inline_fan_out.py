"""Fan-out by the writer: it stores a message and then writes the row of each member.

There is no other process, so this is the simplest layout. A writer that dies in between leaves the
message in the store table, and the rows of some members unwritten. Nobody writes them later. A
writer that repeats the call writes rows twice. Use the sink ``timeline`` where every inbox must
have each message once (docs/guides/timeline.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from rowtide.client.batches import PutRow
from rowtide.client.timeline.inbox import Inboxes
from rowtide.client.timeline.inbox_schema import (
    COPIES_MAX,
    inbox_columns,
    name_shared_inbox,
)
from rowtide.client.timeline.message import FieldInput
from rowtide.client.timeline.timeline import TimelineEntry

__all__ = ["InlineFanOut"]


class InlineFanOut:
    """Stores messages and fills inboxes. See ``TimelineSink`` for ``copies_max``."""

    def __init__(self, inboxes: Inboxes, *, copies_max: int = COPIES_MAX) -> None:
        self._inboxes = inboxes
        self._copies_max = copies_max

    async def store(self, conversation: str, fields: Mapping[str, FieldInput]) -> TimelineEntry:
        """Store a message, then write its rows; return its entry when all are durable.

        Raises ``BatchFailed`` if some rows were not written. The message is stored then.
        """
        entry = await self._inboxes.store.of(conversation).store(fields)
        await self.copy(conversation, entry)
        return entry

    async def copy(self, conversation: str, entry: TimelineEntry) -> None:
        """Write the rows of a stored message. A repeat writes them again."""
        row = inbox_columns(conversation, entry.id, entry.fields.get(self._inboxes.sender))
        sync = self._inboxes.sync
        users = iter(await self._users(conversation))
        rows_max = sync.client.limits.batch_write_rows_max
        while part := list(islice(users, rows_max)):
            inboxes = [sync.of(user).identifier for user in part]
            await sync.client.write([PutRow(sync.schema.table, inbox | row) for inbox in inboxes])

    async def _users(self, conversation: str) -> list[str]:
        """Return the names of the inboxes that get a conversation's messages."""
        users: list[str] = []
        async for user in self._inboxes.members.of(conversation):
            users.append(user)
            if len(users) > self._copies_max:
                await self._inboxes.members.mark_shared(conversation)
                return [name_shared_inbox(conversation)]
        return users
