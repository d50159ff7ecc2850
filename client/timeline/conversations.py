"""The conversations of a user: the last message of each, and how many messages are unread.

Nothing is counted in advance. Unread messages are counted when asked, from the messages that are
there, so the number is right after a recall, an expiry or a crash.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.client.predicates import column
from rowtide.client.timeline.cursors import Cursors, ReadCursor
from rowtide.client.timeline.timeline import SCAN_LIMIT, TimelineEntry, Timelines
from rowtide.core.values.errors import first_failure, invalid
from rowtide.core.values.limits import INT64_MAX

__all__ = ["Conversation", "Conversations", "InboxEntry", "Unread"]

UNREAD_LIMIT = 99
READS_AT_ONCE = 16


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


class InboxEntry(NamedTuple):
    """A message in a user's inbox, and the conversation that it is from."""

    conversation: str
    entry: TimelineEntry


class Conversations:
    """Conversations as timelines of ``store``, each named by one text, and their ``cursors``.

    ``sender`` is the field with the user who sent a message. One's own messages are never unread.
    """

    def __init__(self, store: Timelines, cursors: Cursors, *, sender: str = "sender") -> None:
        if [kind for _, kind in store.schema.key.columns] != [str]:
            raise invalid(
                f"Conversations need one text as identifier; table '{store.schema.table}' has "
                f"({', '.join(store.schema.key.names)})."
            )
        self._store = store
        self._cursors = cursors
        self._sender = sender

    async def unread(self, user: str, conversation: str, *, limit: int = UNREAD_LIMIT) -> Unread:
        """Return how many messages of others are above the user's cursor, up to ``limit``."""
        read_id = await self._cursors.get(user, conversation)
        return await self._count(user, ReadCursor(conversation, read_id), limit)

    async def of(self, user: str, *, limit: int = UNREAD_LIMIT) -> list[Conversation]:
        """Return the user's conversations, the one with the newest message first."""
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(cursor: ReadCursor) -> Conversation:
            async with at_once:
                last = await self._store.of(cursor.conversation).latest()
                unread = await self._count(user, cursor, limit)
            return Conversation(cursor.conversation, last, unread)

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
        names = [cursor.conversation for cursor in await self._cursors.of(user)]
        page: list[InboxEntry] = []
        heads: list[tuple[int, str, TimelineEntry]] = []
        scans = {name: self._page_of(name, before, limit) for name in names}
        try:
            for name, scan in scans.items():
                await _push_next(heads, name, scan)
            while heads and len(page) < limit:
                _, name, entry = heapq.heappop(heads)
                page.append(InboxEntry(name, entry))
                await _push_next(heads, name, scans[name])
        finally:
            for scan in scans.values():
                await scan.aclose()
        return page

    async def _page_of(
        self, name: str, before: InboxEntry | None, limit: int
    ) -> AsyncGenerator[TimelineEntry, None]:
        """Yield a conversation's part of a page, newest first."""
        high = INT64_MAX
        if before is not None:
            # A message of a later name with the same id follows the last one of the page before.
            high = before.entry.id - (name <= before.conversation)
        if high > 0:
            async for entry in self._store.of(name).backward(high, limit=limit):
                yield entry

    async def _count(self, user: str, cursor: ReadCursor, limit: int) -> Unread:
        if limit < 1:
            raise invalid(f"The limit of unread messages is 1 at least, not {limit}.")
        if cursor.read_id >= INT64_MAX - 1:
            return Unread(0)
        is_of_others = column(self._sender, or_missing=True) != user
        found = self._store.of(cursor.conversation).forward(
            cursor.read_id + 1, limit=limit + 1, filter=is_of_others, fields=[self._sender]
        )
        count = len([entry async for entry in found])
        return Unread(min(count, limit), has_more=count > limit)


async def _push_next(
    heads: list[tuple[int, str, TimelineEntry]],
    name: str,
    scan: AsyncGenerator[TimelineEntry, None],
) -> None:
    entry = await anext(scan, None)
    if entry is not None:
        heapq.heappush(heads, (-entry.id, name, entry))
