"""The conversations of a user: the last message of each, and how many messages are unread.

Nothing is counted in advance. Unread messages are counted when asked, from the messages that are
there, so the number is right after a recall, an expiry or a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.client.row_values import RowDict
from rowtide.client.timeline.cursors import Cursors, ReadCursor
from rowtide.client.timeline.inbox import InboxEntry, Inboxes
from rowtide.client.timeline.merged_scans import merge_scans, scan_page, take
from rowtide.client.timeline.schema import TTL_FOREVER
from rowtide.client.timeline.timeline import SCAN_LIMIT, Timeline, TimelineEntry, Timelines
from rowtide.core.values.errors import first_failure, invalid
from rowtide.core.values.limits import INT64_MAX

__all__ = ["Conversation", "Conversations", "Unread"]

UNREAD_LIMIT = 99
READS_AT_ONCE = 16

WHOLE_BYTES = 32 * 1024
"""Bytes of a conversation that are read as they are stored, which costs the server a twentieth of
what it costs to choose a column of each row. Of the rows after these, only what is counted is read.
"""

ROW_BYTES = 1024.0
"""The size of a message before any is known."""

LEARNED = 0.1
"""The weight of the rows read last in the known size of messages."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A number of unread messages. With ``has_more`` there are more, and it prints as "99+"."""

    count: int
    has_more: bool = False

    def __str__(self) -> str:
        """Return the number as a badge shows it."""
        return f"{self.count}+" if self.has_more else str(self.count)


class Conversation(NamedTuple):
    """A conversation of a user; ``last`` is None while it has no message."""

    name: str
    last: TimelineEntry | None
    unread: Unread


class Conversations:
    """Conversations as timelines of ``store``, each named by one text, and their ``cursors``.

    ``sender`` is the field with the user who sent a message. One's own messages are never unread.
    With ``inboxes``, ``inbox`` reads what a fan-out wrote.
    """

    def __init__(
        self,
        store: Timelines,
        cursors: Cursors,
        *,
        sender: str = "sender",
        inboxes: Inboxes | None = None,
    ) -> None:
        store.require_one_text("Conversations")
        self._store = store
        self._cursors = cursors
        self._sender = sender
        self._inboxes = inboxes
        self._row_bytes = ROW_BYTES

    async def unread(self, user: str, conversation: str, *, limit: int = UNREAD_LIMIT) -> Unread:
        """Return how many messages of others are above the user's cursor, up to ``limit``."""
        _check_limit(limit)
        read_id = await self._cursors.get(user, conversation)
        return (await self._read(user, ReadCursor(conversation, read_id), limit)).unread

    async def of(self, user: str, *, limit: int = UNREAD_LIMIT) -> list[Conversation]:
        """Return the user's conversations, the one with the newest message first."""
        _check_limit(limit)
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(cursor: ReadCursor) -> Conversation:
            async with at_once:
                found = await self._read(user, cursor, limit)
                if found.last is not None:
                    return found
                # The message at the cursor is deleted: the last one is below, or there is none.
                last = await self._store.of(cursor.conversation).latest()
                return found._replace(last=last)

        cursors = await self._cursors.of(user)
        try:
            async with asyncio.TaskGroup() as tasks:
                reads = [
                    tasks.create_task(read(cursor), name=f"conversation {cursor.conversation}")
                    for cursor in cursors
                ]
        except BaseExceptionGroup as failures:
            raise first_failure(failures) from None
        found = [task.result() for task in reads]
        return sorted(found, key=lambda one: (-(one.last.id if one.last else 0), one.name))

    async def inbox(
        self, user: str, *, before: InboxEntry | None = None, limit: int = SCAN_LIMIT
    ) -> Sequence[InboxEntry]:
        """Return messages of all of the user's conversations, newest first.

        ``before`` is the last message of the page that the user has. Pages have no seam: messages
        are in the order of their ids, and those with one id in the order of the conversations.
        """
        if self._inboxes is not None:
            return await self._inboxes.of(user).page(before=before, limit=limit)
        names = [cursor.conversation for cursor in await self._cursors.of(user)]
        last = None if before is None else (before.entry.id, before.conversation)
        scans = {name: scan_page(self._store.of(name), name, last, limit) for name in names}
        async with aclosing(merge_scans(scans, newest_first=True)) as merged:
            found = await take(merged, limit)
        return [InboxEntry(name, entry, entry.id) for name, entry in found]

    async def _read(self, user: str, cursor: ReadCursor, limit: int) -> Conversation:
        """Return a conversation; ``last`` is None if no message is at the cursor or above it."""
        timeline, sequence = self._store.of(cursor.conversation), self._store.schema.sequence
        last: TimelineEntry | None = None
        count = 0
        async with aclosing(self._rows_down_to(cursor.read_id, timeline, limit + 2)) as rows:
            async for row in rows:
                last = last or timeline.entry_of(row)
                count += row[sequence] != cursor.read_id and row.get(self._sender) != user
                if count > limit:
                    break
        unread = Unread(min(count, limit), has_more=count > limit)
        return Conversation(cursor.conversation, last, unread)

    async def _rows_down_to(
        self, id: int, timeline: Timeline, wanted: int
    ) -> AsyncGenerator[RowDict, None]:
        """Yield the rows of messages from the newest one down to an id, which is included.

        ``wanted`` is how many rows the caller mostly needs at most.
        """
        client, schema = self._store.client, self._store.schema

        def key(id: int) -> RowDict:
            return {**timeline.identifier, schema.sequence: id}

        low, high = max(0, id - 1), INT64_MAX
        left = max(1, min(wanted, int(WHOLE_BYTES / self._row_bytes)))
        whole = client.range(schema.table, key(high), key(low), reverse=True, limit=left)
        async for row in whole:
            self._row_bytes += LEARNED * (_count_bytes(row) - self._row_bytes)
            left, high = left - 1, int(row[schema.sequence]) - 1
            if not schema.has_expired(row):
                yield row
        if left or high <= low:
            return
        # Where rows expire, one without columns has expired: then all columns are read.
        columns = [self._sender] if schema.ttl_s == TTL_FOREVER else []
        async for row in client.range(
            schema.table,
            key(high),
            key(low),
            reverse=True,
            columns=columns,
            page_rows=max(1, wanted),
        ):
            if not schema.has_expired(row):
                yield row


def _count_bytes(row: RowDict) -> int:
    """Return about how many bytes a row has."""
    return sum(len(v) if isinstance(v, str | bytes) else 8 for v in row.values())


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise invalid(f"The limit of unread messages is 1 at least, not {limit}.")
