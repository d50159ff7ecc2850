"""A chat of many users on a cluster of two workers, and what must hold of it at the end.

All that was sent is known here. So each inbox, each device and each number of unread messages is
compared with what it must be.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import cycle

from rowtide.client.timeline.inbox_schema import name_shared_inbox
from rowtide.client.timeline.schema import MESSAGE_ID
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from tests.support.waiting import until_async
from tests.workers.timelines.chat import Chat, repeat
from tests.workers.timelines.devices import FollowingDevice, VisitingDevice, differences
from tests.workers.timelines.faults import Faults
from tests.workers.timelines.plan import Planned, Sizes, make_messages

__all__ = ["ChatWorld"]

USERS_PER_FOLLOWED = 250
"""Of so many users, one has two devices that follow. Each user has a device that visits."""

REPEATED, RECALLED = 0.02, 0.02
"""Shares of messages that are sent again after an answer, and that are recalled."""

USERS_PER_VISITOR = 500
VISIT_PAUSE_S = 0.03
"""One visitor is all devices of so many users, one after another."""

SENDS_AT_ONCE = 2
"""Messages that a sender has under way, of any conversations."""

VISITS_AT_ONCE = 8
STALL_S_MAX = 240.0
"""How long nothing may arrive: longer than a dead client's transaction holds a conversation."""


@dataclass(slots=True)
class Sent:
    """What is known of the messages; ids by the sender's id of a message."""

    ids: dict[str, int] = field(default_factory=dict)
    planned: dict[str, Planned] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)
    repeats: int = 0

    def note(self, planned: Planned, id: int) -> bool:
        """Note an answer; True if it is the first one. All must name one entry."""
        known = self.ids.setdefault(planned.message_id, id)
        assert known == id, f"{planned.message_id} is stored twice: {known}, {id}"
        if planned.message_id in self.planned:
            self.repeats += 1
            return False
        self.planned[planned.message_id] = planned
        return True

    def of_conversations(self) -> dict[str, list[int]]:
        """Return the ids of all messages of each conversation, in order."""
        found: dict[str, list[int]] = defaultdict(list)
        for message_id, planned in self.planned.items():
            found[planned.conversation].append(self.ids[message_id])
        return {name: sorted(ids) for name, ids in found.items()}


class ChatWorld:
    """A run. ``chats`` reach the cluster by both workers; those of ``senders`` lose answers."""

    def __init__(
        self,
        sizes: Sizes,
        groups: dict[str, list[str]],
        chats: Sequence[Chat],
        senders: Sequence[Chat],
        chance: random.Random,
    ) -> None:
        self.sizes = sizes
        self.groups = groups
        self.sent = Sent()
        self._chats = chats
        self._senders = senders
        self._chance = chance
        self._is_sent = asyncio.Event()
        self.unread_compared = 0
        """How many numbers of unread messages are those of the store table."""
        shared = [name for name, members in groups.items() if len(members) > sizes.copies_max]
        inboxes = [f"u{number}" for number in range(sizes.users)]
        inboxes += [name_shared_inbox(name) for name in shared]
        self.visiting = {name: VisitingDevice(name) for name in inboxes}
        followed = inboxes[: max(1, sizes.users // USERS_PER_FOLLOWED)]
        self.following = [FollowingDevice(user) for user in followed * 2]

    @property
    def inbox_rows(self) -> int:
        """The number of rows that all devices that visit have got."""
        return sum(device.count for device in self.visiting.values())

    async def run(self, faults: Faults) -> None:
        """Send everything while processes die, shards change, and devices come and go."""
        shares = make_messages(self.sizes, self.groups, self._chance)
        async with asyncio.TaskGroup() as beside:
            lives = [device.live(self._chats, self._chance) for device in self.following]
            endless = [beside.create_task(life, name="device") for life in lives]
            endless.append(beside.create_task(self._reshape_often(faults), name="reshape"))
            visitors = max(1, self.sizes.users // USERS_PER_VISITOR)
            devices = list(self.visiting.values())
            for number in range(visitors):
                visits = self._visit_often(devices[number::visitors])
                beside.create_task(visits, name="visits")
            async with asyncio.TaskGroup() as senders:
                for share in shares * SENDS_AT_ONCE:
                    senders.create_task(self._send_all(share), name="sender")
                await self._kill_often(faults)
            for task in endless:
                task.cancel()
            self._is_sent.set()
        await self._drain()

    async def _kill_often(self, faults: Faults) -> None:
        """Kill processes while messages are sent, at equal parts of them."""
        for kill in range(self.sizes.kills):
            due = self.sizes.messages * (kill + 1) // (self.sizes.kills + 1)
            await self._until_sent(due)
            await faults.kill()

    async def _reshape_often(self, faults: Faults) -> None:
        """Change shards while messages are sent, at equal parts of them."""
        for change in range(self.sizes.changes):
            await self._until_sent(self.sizes.messages * change // self.sizes.changes)
            await faults.reshape()

    async def _until_sent(self, count: int) -> None:
        """Wait for so many answers. A slow machine may take long, but goes on."""
        sent = self.sent.planned
        while (before := len(sent)) < count:
            await until_async(
                lambda: len(sent) > before,
                lambda: f"after {len(sent)} messages, no other is answered",
                s_max=STALL_S_MAX,
            )

    async def _send_all(self, share: deque[Planned]) -> None:
        """Send messages, each until an answer comes, some again after it."""
        while share:
            planned = share.popleft()
            conversation, sender, message_id = planned
            chat = self._chance.choice(self._senders)
            timeline = chat.store.of(conversation)
            try:
                entry = await timeline.send({"sender": sender}, message_id=message_id)
            except (Unavailable, OutcomeUnknown):
                share.append(planned)  # A client that died may hold the conversation for a while.
                await asyncio.sleep(0.02)
                continue
            drawn = self._chance.random()
            if self.sent.note(planned, entry.id) and drawn < REPEATED:
                share.append(planned)
            elif drawn > 1 - RECALLED:
                await repeat(lambda: timeline.delete(entry.id))  # noqa: B023 - awaited here.
                self.sent.recalled.add(message_id)

    async def _visit_often(self, devices: Sequence[VisitingDevice]) -> None:
        """Let devices return, one at a time, and report what they have read.

        A device is in one place: two visitors must not share it.
        """
        while not self._is_sent.is_set():
            device = self._chance.choice(devices)
            await device.visit(self._chance.choice(self._chats))
            if not device.name.startswith("\0"):
                await device.report_read(self._chance.choice(self._chats), self._chance)
            await asyncio.sleep(VISIT_PAUSE_S)

    async def _drain(self) -> None:
        """Let every device get the rest."""
        wanted = {
            name: sum(map(len, messages.values())) for name, messages in self._list_wanted().items()
        }

        async def visit(device: VisitingDevice) -> None:
            async with asyncio.timeout(STALL_S_MAX) as until:
                while (count := device.count) < wanted[device.name]:
                    await device.visit(self._chance.choice(self._chats))
                    if device.count > count:
                        until.reschedule(asyncio.get_running_loop().time() + STALL_S_MAX)
                    else:
                        await asyncio.sleep(0.2)

        await self._do_some_at_once(visit(device) for device in self.visiting.values())
        for device in self.following:
            await device.catch_up(self._chats[0])

    async def _do_some_at_once(self, calls: Iterable[Awaitable[None]]) -> None:
        left = iter(calls)

        async def work() -> None:
            for call in left:
                await call

        async with asyncio.TaskGroup() as tasks:
            for _ in range(VISITS_AT_ONCE):
                tasks.create_task(work(), name="device")

    def _list_wanted(self) -> dict[str, dict[str, list[int]]]:
        """Return the messages that each inbox must have, by conversation, in order."""
        wanted: dict[str, dict[str, list[int]]] = {name: {} for name in self.visiting}
        for name, ids in self.sent.of_conversations().items():
            members = self.groups[name]
            is_shared = len(members) > self.sizes.copies_max
            for inbox in [name_shared_inbox(name)] if is_shared else members:
                wanted[inbox][name] = ids
        return wanted

    # What must hold.

    async def check(self) -> None:
        """Check all that must hold at the end."""
        stored = await self._read_store()
        self._check_store(stored)
        self._check_devices()
        chats = cycle(self._chats)
        await self._do_some_at_once(
            self._check_unread(f"u{number}", next(chats), stored)
            for number in range(self.sizes.users)
        )

    async def _read_store(self) -> dict[str, list[tuple[int, str, str]]]:
        """Return the id, the sender and the sender's id of each message, by conversation."""
        found: dict[str, list[tuple[int, str, str]]] = {}
        for name in self.groups:
            entries = self._chats[0].store.of(name).forward(limit=None)
            found[name] = [
                (entry.id, str(entry.fields["sender"]), str(entry.fields[MESSAGE_ID]))
                async for entry in entries
            ]
        return found

    def _check_store(self, stored: dict[str, list[tuple[int, str, str]]]) -> None:
        """Each message is stored once, in its conversation, unless it was recalled."""
        sent = self.sent
        assert len(sent.planned) == self.sizes.messages
        for name, messages in stored.items():
            for id, sender, message_id in messages:
                assert sent.planned[message_id] == (name, sender, message_id)
                assert sent.ids[message_id] == id, f"{message_id} is stored twice"
                assert message_id not in sent.recalled, f"{message_id} is back"
        count = sum(map(len, stored.values()))
        assert count == len(sent.planned) - len(sent.recalled)

    def _check_devices(self) -> None:
        """Each device has each message once and in order, also if it was away meanwhile."""
        wanted = self._list_wanted()
        for name, device in self.visiting.items():
            wrong = differences(device.messages, wanted[name])
            assert not wrong, f"{name}: {wrong}"
        ids = self.sent.of_conversations()
        for follower in self.following:
            its = {name: ids[name] for name in ids if follower.user in self.groups[name]}
            wrong = differences(follower.messages, its)
            assert not wrong, f"{follower.user} follows: {wrong}"

    async def _check_unread(
        self, user: str, chat: Chat, stored: dict[str, list[tuple[int, str, str]]]
    ) -> None:
        """The numbers of unread messages are those of the store table."""
        read = self.visiting[user].read
        found = await repeat(lambda: chat.conversations.of(user))
        assert {one.name for one in found} == {
            name for name, members in self.groups.items() if user in members
        }
        for one in found:
            unread = [
                id
                for id, sender, _ in stored[one.name]
                if id > read.get(one.name, 0) and sender != user
            ]
            assert one.unread.count == min(99, len(unread)), f"{user}, {one.name}"
            assert one.unread.has_more == (len(unread) > 99)
            self.unread_compared += 1
            last = stored[one.name][-1][0] if stored[one.name] else None
            assert (one.last.id if one.last else None) == last, f"{user}, {one.name}"
