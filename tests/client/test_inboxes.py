"""Inboxes without a running fan-out: rows that a writer copies, pages, positions and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from rowtide.client import (
    AsyncClient,
    Conversations,
    Cursors,
    InboxEntry,
    Inboxes,
    InboxPosition,
    InlineFanOut,
    Members,
    OutcomeUnknown,
    Rejected,
    TimelineExpired,
    Timelines,
    TimelineSchema,
    inbox_schema,
)
from rowtide.client.http_exchange import HttpAnswer
from rowtide.client.timeline.schema import SYNC_TTL_S
from tests.client.timelines import collect, take

pytestmark = pytest.mark.system

Access = dict[str, Any]


def run(
    access: Access, test: Callable[[Inboxes], Awaitable[None]], *, manual: bool = False
) -> None:
    """Run a test on new tables. With ``manual`` it chooses the ids of inbox rows."""

    async def run_test() -> None:
        async with AsyncClient(**access) as client:
            cursors = Cursors(client)
            schema = inbox_schema("im_sync")
            if manual:
                schema = TimelineSchema("im_sync", ("user",), manual_sequence=True)
            inboxes = Inboxes(
                Timelines(client, TimelineSchema("im_store")),
                Timelines(client, schema),
                Members(client, cursors),
                cursors,
            )
            await inboxes.store.create()
            await inboxes.sync.create()
            await inboxes.members.create()
            await cursors.create()
            await test(inboxes)

    asyncio.run(run_test())


def ids_of(entries: list[InboxEntry]) -> list[tuple[str, int]]:
    return [(entry.conversation, entry.entry.id) for entry in entries]


def test_a_writer_copies_its_messages_to_the_members(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        for user in ("ada", "bob"):
            assert await inboxes.members.join("group", user)
        assert not await inboxes.members.join("group", "ada")
        assert await collect(inboxes.members.of("group")) == ["ada", "bob"]
        fan_out = InlineFanOut(inboxes)
        entry = await fan_out.store("group", {"sender": "ada", "text": "hello"})
        await inboxes.members.leave("group", "bob")
        later = await fan_out.store("group", {"sender": "ada", "text": "bye"})
        found = await collect(inboxes.of("ada").after())
        assert [one.entry for one in found] == [entry, later]
        assert ids_of(await collect(inboxes.of("bob").after())) == [("group", entry.id)]
        assert found[0].id < found[1].id
        assert await collect(inboxes.of("ada").after(found[0].id)) == found[1:]
        assert await collect(inboxes.of("nobody").after()) == []

    run(access, check)


def test_a_conversation_that_grows_and_shrinks_leaves_no_seam(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        fan_out = InlineFanOut(inboxes, copies_max=3)
        sent: list[tuple[str, int]] = []
        for user in ("ada", "bob"):
            await inboxes.members.join("small", user)
            await inboxes.members.join("group", user)
        for step in range(12):
            if step == 4:
                for user in ("cy", "dan"):
                    await inboxes.members.join("group", user)
            if step == 8:
                await inboxes.members.leave("group", "dan")
            sent += [
                (name, (await fan_out.store(name, {"sender": "ada"})).id)
                for name in ("group", "small")
            ]
        inbox = inboxes.of("ada")
        assert await inboxes.members.find_shared(["small", "group", "other"]) == ["group"]
        conversations = Conversations(inboxes.store, inboxes.cursors, inboxes=inboxes)
        for limit in (1, 2, 5, 7, 30):
            found: list[InboxEntry] = []
            while page := await conversations.inbox(
                "ada", before=found[-1] if found else None, limit=limit
            ):
                assert len(page) <= limit
                found += page
            assert ids_of(found) == sent[::-1]
        forward = await collect(inbox.after())
        assert ids_of(forward) == sent
        for at, entry in enumerate(forward):
            assert ids_of(await collect(inbox.after(str(entry.position)))) == sent[at + 1 :]
        latest = await inbox.latest_position()
        assert await collect(inbox.after(latest)) == []
        assert latest == forward[-1].position
        assert ids_of(await collect(inbox.after(limit=3))) == sent[:3]

    run(access, check)


def test_a_device_follows_all_of_its_inboxes(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        fan_out = InlineFanOut(inboxes, copies_max=1)
        for user in ("ada", "bob"):
            await inboxes.members.join("large", user)
        await inboxes.members.join("own", "ada")
        sent = [("large", (await fan_out.store("large", {"n": 0})).id)]

        async def send() -> None:
            for number in range(1, 6):
                name = "own" if number % 2 else "large"
                sent.append((name, (await fan_out.store(name, {"n": number})).id))

        async with asyncio.TaskGroup() as tasks:
            seen = tasks.create_task(take(inboxes.of("ada").follow(), 6))
            tasks.create_task(send())
        assert sorted(ids_of(seen.result())) == sorted(sent)

    run(access, check)


def test_a_device_follows_more_inboxes_than_one_filter_tests_through_failures(
    access: Access,
) -> None:
    """Twenty shared inboxes are watched by two reads, of which each in turn loses its answer."""

    async def check(inboxes: Inboxes) -> None:
        names = [f"large {number}" for number in range(20)]
        for name in names:
            await inboxes.members.join(name, "ada")
            await inboxes.members.mark_shared(name)
        fan_out = InlineFanOut(inboxes, copies_max=0)
        endpoint = inboxes.store.client.endpoint
        exchange = endpoint.exchange
        reads = 0

        async def lose_answers(operation: str, body: bytes, more: Any = None) -> HttpAnswer:
            nonlocal reads
            answer = await exchange(operation, body, more)
            reads += operation == "GetStreamRecord"
            if operation == "GetStreamRecord" and reads % 3 == 0:
                raise OutcomeUnknown("The answer was lost.")
            return answer

        endpoint.exchange = lose_answers  # type: ignore[method-assign]
        sent: list[tuple[str, int]] = []
        entries = inboxes.of("ada").follow()
        async with aclosing(entries):  # type: ignore[type-var]
            for name in [*names, *names[::-1]]:
                sent.append((name, (await fan_out.store(name, {"sender": "bob"})).id))
                assert ids_of([await anext(entries)]) == sent[-1:]
        assert reads > 2

    run(access, check)


def test_a_device_that_was_away_for_too_long_gets_expired(
    access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(inboxes: Inboxes) -> None:
        await inboxes.members.join("group", "ada")
        entry = await InlineFanOut(inboxes).store("group", {"sender": "bob"})
        inbox = inboxes.of("ada")
        [first] = await collect(inbox.after())
        away = first.id - (SYNC_TTL_S + 1) * 1_000_000
        with pytest.raises(TimelineExpired) as expired:
            await collect(inbox.after(away))
        assert expired.value.oldest == first.id
        with pytest.raises(TimelineExpired):
            await take(inbox.follow(after=away), 1)
        assert ids_of(await collect(inbox.after(first.id - 1))) == [("group", entry.id)]

    run(access, check)


def test_a_follower_of_a_quiet_inbox_does_not_expire(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        timeline = inboxes.sync.of("ada")
        entry = await timeline.store({"conversation": "group", "message_id": 1})
        away = entry.id - (SYNC_TTL_S + 1) * 1_000_000
        with pytest.raises(TimelineExpired):
            await timeline.require_kept(away)
        # It has read everything at a later time.
        await timeline.require_kept(away, complete_us=entry.id)

    run(access, check)


def test_names_and_positions_are_checked(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        for wrong in ("\0group", "\0"):
            with pytest.raises(Rejected, match="cannot begin with a zero byte"):
                inboxes.of(wrong)
            with pytest.raises(Rejected, match="cannot begin with a zero byte"):
                await inboxes.members.join("group", wrong)
        for position in ("x", "{", '{"": -1}', "[]", "true", -1, 2**63, '{"a": "b"}'):
            with pytest.raises(Rejected, match="inbox"):
                await collect(inboxes.of("ada").after(position))
        with pytest.raises(Rejected, match="limit of a page"):
            await inboxes.of("ada").page(limit=0)
        await inboxes.sync.of("ada").store({"n": 1})
        with pytest.raises(Rejected, match="refers to no message"):
            await collect(inboxes.of("ada").after())

    run(access, check)


@pytest.mark.parametrize(
    "position",
    [InboxPosition(0), InboxPosition(7), InboxPosition(7, {"group:7": 9, "名": 2**62})],
)
def test_a_position_is_a_text(position: InboxPosition) -> None:
    assert InboxPosition.of(str(position)) == position
    assert InboxPosition.of(position) is position


def test_rows_with_one_id_are_on_one_page_each(access: Access) -> None:
    async def check(inboxes: Inboxes) -> None:
        shared = ("", "\0a", "\0b")
        for name in ("a", "b"):
            await inboxes.members.join(name, "ada")
            await inboxes.members.mark_shared(name)
        for user in shared:
            for id in (1, 2, 3):
                row = {"conversation": user[1:] or "own", "message_id": id}
                await inboxes.sync.of(user or "ada").store(row, id=id)
        expected = [(name or "own", id) for id in (3, 2, 1) for name in ("", "a", "b")]
        for limit in (1, 2, 3, 4, 9):
            found: list[InboxEntry] = []
            while page := await inboxes.of("ada").page(
                before=found[-1] if found else None, limit=limit
            ):
                found += page
            assert ids_of(found) == expected
            assert all(entry.is_recalled for entry in found)

    run(access, check, manual=True)
