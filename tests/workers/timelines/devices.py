"""Devices that leave and return: each remembers a position, and gets what it has not seen."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

from rowtide.client import InboxEntry, InboxPosition
from rowtide.client.timeline.inbox_schema import INBOX_CONVERSATION, INBOX_MESSAGE
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from tests.workers.timelines.chat import Chat, repeat

__all__ = ["FollowingDevice", "VisitingDevice", "differences"]

SESSION_S_MAX = 5.0
"""How long a device follows before it leaves, and is away before it returns."""

OUTAGE = (Unavailable, OutcomeUnknown)


class VisitingDevice:
    """A device that returns from time to time and reads the inbox ``name`` after its position.

    ``messages`` are the ids of the messages that it has got, by conversation. ``read`` is how far
    it has reported to have read each conversation.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.position = 0
        self.messages: dict[str, list[int]] = defaultdict(list)
        self.read: dict[str, int] = {}

    @property
    def count(self) -> int:
        """The number of messages that it has got."""
        return sum(map(len, self.messages.values()))

    async def visit(self, chat: Chat) -> None:
        """Get what is new. A failure in the middle leaves the rest for the next visit."""
        with suppress(*OUTAGE):
            rows = chat.sync.of(self.name).after(self.position, limit=None)
            async with aclosing(cast(Any, rows)):
                async for row in rows:
                    assert row.id > self.position, f"{self.name}: an id goes back"
                    self.position = row.id
                    conversation = str(row.fields[INBOX_CONVERSATION])
                    self.messages[conversation].append(cast(int, row.fields[INBOX_MESSAGE]))

    async def report_read(self, chat: Chat, chance: random.Random) -> None:
        """Move the cursor of one conversation to a message that the device has."""
        if self.messages:
            name = chance.choice(list(self.messages))
            id = chance.choice(self.messages[name][-20:])
            now = await repeat(lambda: chat.cursors.read(self.name, name, id))
            assert now >= id, "a cursor goes back"
            self.read[name] = max(id, self.read.get(name, 0))


class FollowingDevice:
    """A device that follows all inboxes of a user while it is there."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.position = InboxPosition(0)
        self.messages: dict[str, list[int]] = defaultdict(list)

    async def live(self, chats: Sequence[Chat], chance: random.Random) -> None:
        """Follow for a while and be away for a while, until cancelled."""
        while True:
            inbox = chance.choice(chats).inboxes.of(self.user)
            with suppress(TimeoutError, *OUTAGE):
                async with asyncio.timeout(chance.uniform(0.5, SESSION_S_MAX)):
                    await self._take(inbox.follow(after=self.position))
            await asyncio.sleep(chance.uniform(0, SESSION_S_MAX))

    async def catch_up(self, chat: Chat) -> None:
        """Get the rest."""
        await repeat(lambda: self._take(chat.inboxes.of(self.user).after(self.position)))

    async def _take(self, entries: AsyncIterator[InboxEntry]) -> None:
        async with aclosing(cast(Any, entries)):
            async for entry in entries:
                assert entry.position is not None, "entries of a follower have positions"
                # A device survives with what it stored: both at once.
                self.position = entry.position
                self.messages[entry.conversation].append(entry.entry.id)


def differences(found: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]]) -> str:
    """Return the first conversation of which a device has other messages, or another order."""
    for name in sorted({*found, *wanted}):
        has, should = list(found.get(name, ())), list(wanted.get(name, ()))
        if has != should:
            lost = sorted({*should} - {*has})[:3]
            extra = sorted({*has} - {*should})[:3]
            return f"{name}: {len(has)} of {len(should)}, without {lost}, with {extra}"
    return ""
