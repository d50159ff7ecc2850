"""Cursors, unread messages, lists of conversations and merged inboxes on a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowtide.client import (
    Conversations,
    Cursors,
    InboxEntry,
    ReadCursor,
    Rejected,
    Timelines,
    TimelineSchema,
    Unread,
)
from tests.client.timelines import collect, run

pytestmark = pytest.mark.system

Access = dict[str, Any]


async def open_cursors(timelines: Timelines) -> Cursors:
    """Return the cursors of a new table."""
    cursors = Cursors(timelines.client)
    assert await cursors.create()
    return cursors


def test_a_cursor_only_moves_forward(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        assert await cursors.join("ada", "g1")
        assert not await cursors.join("ada", "g1", read_id=9)
        assert await cursors.get("ada", "g1") == 0
        assert await cursors.read("ada", "g1", 7) == 7
        assert await cursors.read("ada", "g1", 5) == 7
        assert await cursors.read("ada", "g2", 3) == 3
        assert await cursors.of("ada") == [("g1", 7), ("g2", 3)]
        assert await cursors.of("bob") == []
        await cursors.leave("ada", "g1")
        assert await cursors.get("ada", "g1") == 0
        for read_id in (-1, 2**63, "1", True):
            with pytest.raises(Rejected, match="read_id takes"):
                await cursors.read("ada", "g1", read_id)  # type: ignore[arg-type]

    run(access, check)


def test_devices_that_report_in_any_order_end_at_the_highest_id(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        async with asyncio.TaskGroup() as tasks:
            for number in range(40):
                tasks.create_task(cursors.read("ada", "g", number * 17 % 40 + 1))
        assert await cursors.get("ada", "g") == 40

    run(access, check)


def test_another_device_sees_a_cursor_move(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        await cursors.join("ada", "g1")
        moved = asyncio.Event()

        async def follow() -> list[ReadCursor]:
            found: list[ReadCursor] = []
            async with asyncio.timeout(60):
                async for cursor in cursors.follow("ada"):
                    found.append(cursor)
                    moved.set()
                    if cursor.read_id == 5:
                        return found
            return found

        async with asyncio.TaskGroup() as tasks:
            device = tasks.create_task(follow())
            await moved.wait()
            await cursors.read("bob", "g1", 9)
            await cursors.read("ada", "g1", 5)
        assert device.result() == [("g1", 0), ("g1", 5)]

    run(access, check)


def test_unread_messages_are_those_of_others_above_the_cursor(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        conversations = Conversations(timelines, cursors)
        chat = timelines.of("g")
        senders = ["ada", "bob", "bob", "eve"]
        entries = await chat.store_many([{"sender": sender} for sender in senders])
        await chat.store({"text": "a message without a sender"})
        assert await conversations.unread("ada", "g") == Unread(4)
        await cursors.read("ada", "g", entries[1].id)
        assert await conversations.unread("ada", "g") == Unread(3)
        await chat.delete(entries[2].id)
        assert await conversations.unread("ada", "g") == Unread(2)
        limited = await conversations.unread("ada", "g", limit=1)
        assert (limited, str(limited)) == (Unread(1, has_more=True), "1+")
        await chat.store_many([{"sender": "bob"}] * 150)
        assert str(await conversations.unread("ada", "g")) == "99+"
        await cursors.read("ada", "g", await chat.latest_id())
        assert str(await conversations.unread("ada", "g")) == "0"
        with pytest.raises(Rejected, match="limit of unread"):
            await conversations.unread("ada", "g", limit=0)

    run(access, check)


def test_conversations_come_newest_first(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        conversations = Conversations(timelines, cursors)
        for name in ("a", "b", "c", "silent"):
            await cursors.join("ada", name)
        last = {}
        for name in ("b", "c", "a", "c"):
            last[name] = await timelines.of(name).store({"sender": "bob"})
        found = await conversations.of("ada")
        assert [(one.name, one.last, one.unread.count) for one in found] == [
            ("c", last["c"], 2),
            ("a", last["a"], 1),
            ("b", last["b"], 1),
            ("silent", None, 0),
        ]
        assert await conversations.of("nobody") == []

    run(access, check)


def test_pages_of_an_inbox_have_no_seam(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        conversations = Conversations(timelines, cursors)
        expected = []
        for name, ids in {"a": (1, 2, 5, 7), "b": (2, 3, 5), "c": (2, 9)}.items():
            await cursors.join("ada", name)
            entries = await timelines.of(name).store_many([{"n": id} for id in ids], ids=ids)
            expected += [InboxEntry(name, entry, entry.id) for entry in entries]
        await timelines.of("other").store({"n": 1}, id=4)
        expected.sort(key=lambda one: (-one.entry.id, one.conversation))
        for limit in range(1, 11):
            found: list[InboxEntry] = []
            while page := await conversations.inbox(
                "ada", before=found[-1] if found else None, limit=limit
            ):
                assert len(page) <= limit
                found += page
            assert found == expected, limit

    run(access, check, TimelineSchema("im_store", manual_sequence=True))


def test_conversations_have_one_name(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = await open_cursors(timelines)
        with pytest.raises(Rejected, match="one text as identifier"):
            Conversations(timelines, cursors)
        assert await collect(timelines.of("a", 1).forward()) == []

    run(access, check, TimelineSchema("rooms", {"site": str, "room": int}))
