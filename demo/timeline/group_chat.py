"""The tables of a group chat, and what its users and their devices do."""

from __future__ import annotations

import asyncio
from pathlib import Path

from demo.timeline.stage import declare_fan_out
from rowtide.client import (
    AsyncClient,
    Conversations,
    Cursors,
    Inboxes,
    Members,
    TimelineEntry,
    Timelines,
    TimelineSchema,
    inbox_schema,
)

__all__ = ["GROUP", "GroupChat"]

GROUP = "group:7"
LUNCH = (2, 7)
"""Numbers of the messages that are about lunch."""
DEVICE_S_MAX = 60.0


class GroupChat:
    """One group. Messages are in ``im_store``; the server's fan-out fills ``im_sync``."""

    def __init__(self, client: AsyncClient, search_folder: Path) -> None:
        self.client = client
        self.store = Timelines(client, TimelineSchema("im_store"), search_folder=search_folder)
        self.sync = Timelines(client, inbox_schema("im_sync"))
        self.cursors = Cursors(client)
        self.members = Members(client, self.cursors)
        self.inboxes = Inboxes(self.store, self.sync, self.members, self.cursors)
        self.conversations = Conversations(self.store, self.cursors, inboxes=self.inboxes)
        self.group = self.store.of(GROUP)

    async def create(self) -> None:
        """Create the tables and declare the fan-out."""
        for table in (self.store, self.sync, self.cursors, self.members):
            await table.create()
        await declare_fan_out(self.client, table="im_store", members="im_members", inbox="im_sync")

    async def say(self, user: str, number: int) -> TimelineEntry:
        """Send a message. Of each third one the answer is lost, so it is sent again."""
        text = f"message {number} of {user}"
        if number in LUNCH:
            text = {"ada": "Who is in for lunch?", "bob": "我们去吃午饭"}.get(user, text)
        message, message_id = {"sender": user, "text": text}, f"{user}-{number}"
        if number % 3 == 0:
            await self.group.send(message, message_id=message_id)
        return await self.group.send(message, message_id=message_id)

    async def talk(self, users: tuple[str, ...], rounds: int) -> list[TimelineEntry]:
        """Have all users speak at once in each round; return the messages in their order."""
        sent: list[TimelineEntry] = []
        for number in range(rounds):
            async with asyncio.TaskGroup() as tasks:
                said = [tasks.create_task(self.say(user, number)) for user in users]
            sent += sorted((one.result() for one in said), key=lambda entry: entry.id)
        return sent

    async def follow(self, user: str, count: int) -> list[int]:
        """Be a device: follow the inbox, leave in the middle, and go on at the position."""
        seen: list[int] = []
        position = "0"
        while len(seen) < count:
            async with asyncio.timeout(DEVICE_S_MAX):
                async for entry in self.inboxes.of(user).follow(after=position):
                    seen.append(entry.entry.id)
                    position = str(entry.position)
                    if len(seen) in (count // 2, count):
                        break
        return seen

    async def wait_for_cursor(self, user: str, read_id: int) -> int:
        """Return the user's unread messages once this device sees that another one has read."""
        async with asyncio.timeout(DEVICE_S_MAX):
            async for cursor in self.cursors.follow(user):
                if cursor.read_id >= read_id:
                    break
        return (await self.conversations.unread(user, GROUP)).count
