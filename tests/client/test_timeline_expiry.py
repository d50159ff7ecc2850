"""Messages that have expired are absent, though the server still has the keys of their rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rowtide.client import (
    SYNC_TTL_S,
    Conversations,
    Cursors,
    Inboxes,
    InlineFanOut,
    Members,
    Rejected,
    Timelines,
    TimelineSchema,
    Unread,
    inbox_schema,
)
from rowtide.client.timeline.message import Fields
from rowtide.testing.clock import Clock
from rowtide.testing.instance import InstanceAccess
from tests.client.timelines import collect, run

pytestmark = pytest.mark.system

Access = dict[str, Any]
Advance = Callable[[float], Awaitable[None]]
DAY_S = 86_400


@pytest.fixture
def advance(rowtide_clock: Clock, rowtide_instance: InstanceAccess) -> Advance:
    """Advance the server's clock, and leave what has expired to the reclaimer."""
    assert rowtide_clock.now()

    async def advance_days(days: float) -> None:
        with rowtide_instance.admin() as admin:
            admin.call_json("RowtideAdvanceClock", {"by_us": round(days * DAY_S * 1_000_000)})

    return advance_days


@pytest.mark.parametrize("manual", [False, True])
def test_expired_messages_are_absent_from_every_read(
    access: Access, advance: Advance, manual: bool
) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("a")
        texts: list[Fields] = [{"n": number, "text": "old"} for number in range(250)]
        ids = range(1, 251) if manual else None
        old = await chat.store_many(texts, ids=ids)
        await advance(4)
        more: list[Fields] = [{"n": number, "text": "new"} for number in range(5)]
        new = await chat.store_many(more, ids=range(251, 256) if manual else None)
        assert len(await collect(chat.forward(limit=None))) == 255
        await advance(4)
        assert await collect(chat.forward()) == new
        assert await collect(chat.forward(limit=1)) == new[:1]
        assert await collect(chat.forward(limit=None)) == new
        assert await collect(chat.backward(limit=30)) == new[::-1]
        assert await collect(chat.backward(old[-1].id)) == []
        assert await collect(chat.forward(old[3].id, old[7].id)) == []
        numbers = [entry.fields for entry in await collect(chat.forward(fields=["n"], limit=3))]
        assert numbers == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert [entry.fields async for entry in chat.forward(fields=["none"], limit=1)] == [{}]
        assert await chat.get(old[0].id) is None
        found = await timelines.get_many([("a", old[0].id), ("a", new[0].id)])
        assert found == [None, new[0]]
        assert await chat.latest_id() == new[-1].id
        await advance(4)
        assert (await chat.latest_id(), await chat.latest()) == (0, None)
        with pytest.raises(Rejected, match="needs a field"):
            await chat.store({}, id=300 if manual else None)

    run(access, check, TimelineSchema("im_old", manual_sequence=manual, ttl_s=SYNC_TTL_S))


def test_expired_messages_are_not_unread(access: Access, advance: Advance) -> None:
    async def check(timelines: Timelines) -> None:
        cursors = Cursors(timelines.client)
        await cursors.create()
        conversations = Conversations(timelines, cursors)
        await cursors.join("ada", "g")
        await timelines.of("g").store_many([{"sender": "bob"}, {"text": "without a sender"}])
        assert await conversations.unread("ada", "g") == Unread(2)
        await advance(8)
        assert await conversations.unread("ada", "g") == Unread(0)
        [conversation] = await conversations.of("ada")
        assert conversation.last is None

    run(access, check, TimelineSchema("im_old", ttl_s=SYNC_TTL_S))


def test_an_inbox_with_expired_rows_is_read(access: Access, advance: Advance) -> None:
    async def check(store: Timelines) -> None:
        sync, cursors = Timelines(store.client, inbox_schema("im_sync")), Cursors(store.client)
        members = Members(store.client, cursors)
        for table in (sync, cursors, members):
            await table.create()
        await members.join("g", "ada")
        inboxes = Inboxes(store, sync, members, cursors)
        fan_out, inbox = InlineFanOut(inboxes), inboxes.of("ada")
        old = await fan_out.store("g", {"sender": "bob"})
        [first] = await collect(inbox.after(0))
        assert first.entry == old
        await advance(8)
        assert await inbox.page() == []
        assert await collect(inbox.after(0)) == []
        new = await fan_out.store("g", {"sender": "bob"})
        assert [entry.entry for entry in await inbox.page()] == [new]
        assert [entry.entry for entry in await collect(inbox.after(0))] == [new]

    run(access, check)
