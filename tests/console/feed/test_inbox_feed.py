"""The feed of one inbox in a browser: what its token allows, and that devices agree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client import (
    AsyncClient,
    Cursors,
    Inboxes,
    InlineFanOut,
    Members,
    Timelines,
    TimelineSchema,
    inbox_schema,
)
from rowtide.client.timeline.inbox_schema import name_shared_inbox
from rowtide.console.feed.open_feed import CONFIRM_S
from rowtide.console.workers.tokens import FRESH_S
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.support.consoles import RunningConsole

pytestmark = pytest.mark.system

GROUP = "group:7"
REVOKED_S_MAX = 5.0
WAIT_S_MAX = 60.0


class InboxFeeds:
    """The tables of a chat, and viewers of its inboxes."""

    def __init__(self, console: RunningConsole, client: AsyncClient, name: str) -> None:
        self.console = console
        self.store = Timelines(client, TimelineSchema(f"{name}_store"))
        self.sync = Timelines(client, inbox_schema(f"{name}_sync"))
        cursors = Cursors(client, f"{name}_cursors")
        self.members = Members(client, cursors, f"{name}_members")
        self.tables = (self.store, self.sync, cursors, self.members)
        self.inboxes = Inboxes(self.store, self.sync, self.members, cursors)
        self.fan_out = InlineFanOut(self.inboxes, copies_max=3)

    async def send(self, user: str, count: int) -> None:
        """Send messages to the group, one after another."""
        for number in range(count):
            await self.fan_out.store(GROUP, {"sender": user, "n": number})

    async def messages(self, user: str) -> list[int]:
        """Return the ids of the messages in an inbox, the oldest first."""
        return [entry.entry.id async for entry in self.inboxes.of(user).after(0)]

    def share(self, key: str | None, table: str = "") -> dict[str, Any]:
        """Create a token for an inbox, or for a whole table."""
        fields = {"table": table or self.sync.schema.table}
        with self.admin() as admin:
            made = admin.call_json(
                "RowtideCreateToken", fields if key is None else {**fields, "key": key}
            )
        return made

    @contextmanager
    def admin(self) -> Iterator[ProtocolClient]:
        """Yield a connection with the admin right."""
        with ProtocolClient(**self.console.ready._asdict(), timeout_s=30.0) as client:
            yield client

    def view(self, token: str, table: str = "", **parameters: str) -> FeedClient:
        """Return a device that is not connected yet."""
        path = f"/stream/{self.console.ready.instance}/{table or self.sync.schema.table}"
        return FeedClient(path, headers={"Authorization": f"Bearer {token}"}, **parameters)


@pytest.fixture
async def feeds(
    console: RunningConsole, request: pytest.FixtureRequest
) -> AsyncIterator[InboxFeeds]:
    """The tables of a test, with two members of the group."""
    async with AsyncClient(**console.ready._asdict()) as client:
        found = InboxFeeds(console, client, f"t{abs(hash(request.node.name)) % 10**8}")
        for table in found.tables:
            await table.create()
        for user in ("ada", "bob"):
            await found.members.join(GROUP, user)
        yield found


def references(device: FeedClient) -> list[int]:
    """Return the ids of the messages of the rows that a device got, in the order of arrival."""
    rows = [row for event in device.events for row in (event.get("data") or {}).get("rows", [])]
    return [row["columns"]["message_id"] for row in (*rows, *device.records)]


async def follow(feeds: InboxFeeds, device: FeedClient, count: int, *, leave_every: int) -> None:
    """Follow until so many rows have come; leave and come back again and again."""
    async with asyncio.timeout(WAIT_S_MAX):
        while len(references(device)) < count:
            got = len(references(device))
            async with device.connect(feeds.console.url) as events:
                async for _ in events:
                    more = len(references(device)) - got
                    if len(references(device)) >= count or (leave_every and more >= leave_every):
                        break


async def test_two_devices_see_the_same_order(feeds: InboxFeeds) -> None:
    await feeds.send("ada", 5)
    token = feeds.share("ada")["token"]
    phone, laptop = feeds.view(token, begin="rows"), feeds.view(token, begin="oldest", format="sse")
    async with asyncio.TaskGroup() as tasks:
        for sender in ("ada", "bob", "eve"):
            tasks.create_task(feeds.send(sender, 20))
        tasks.create_task(follow(feeds, phone, 65, leave_every=0))
        tasks.create_task(follow(feeds, laptop, 65, leave_every=7))
    wanted = await feeds.messages("ada")
    assert len(wanted) == 65
    assert references(phone) == references(laptop) == wanted


async def refusal_of(device: FeedClient, feeds: InboxFeeds) -> tuple[int, str]:
    """Return status and words of a feed that is refused."""
    with pytest.raises(Refusal) as refused:
        await device.take(feeds.console.url, "ready")
    assert "Traceback" not in refused.value.text
    return refused.value.status, json.loads(refused.value.text)["error"]["message"]


async def test_a_token_of_one_inbox_reads_no_other(feeds: InboxFeeds) -> None:
    await feeds.send("eve", 3)
    token = feeds.share("ada")["token"]
    device = feeds.view(token, begin="rows", key="ada")
    await device.take(feeds.console.url, "rows")
    assert references(device) == await feeds.messages("ada")

    refused = await refusal_of(feeds.view(token, begin="rows", key="bob"), feeds)
    assert refused == (403, "This token allows another partition key alone.")
    store = feeds.store.schema.table
    status, words = await refusal_of(feeds.view(token, store), feeds)
    assert status == 403
    assert words.startswith(f"The share token does not allow table '{store}' of instance")
    other_instance = FeedClient(f"/stream/other/{store}", headers=device.headers)
    assert (await refusal_of(other_instance, feeds))[0] == 403
    assert (await refusal_of(feeds.view(token[:-1]), feeds))[0] == 403


async def test_a_position_of_one_inbox_shows_nothing_of_another(feeds: InboxFeeds) -> None:
    await feeds.members.join("of ada", "ada")
    ada = feeds.view(feeds.share("ada")["token"], begin="oldest")
    await feeds.fan_out.store("of ada", {"sender": "eve"})
    await ada.take(feeds.console.url, "records")
    assert len(references(ada)) == 1
    bob = feeds.view(feeds.share("bob")["token"], after=ada.events[0]["id"])
    await feeds.send("eve", 1)
    await bob.take(feeds.console.url, "records")
    assert {record["key"]["user"] for record in bob.records} == {"bob"}
    filtered = feeds.view(feeds.share("bob")["token"], begin="oldest", filter="user = 'ada'")
    async with filtered.connect(feeds.console.url) as events:
        assert (await anext(events))["event"] == "ready"
        assert (await anext(events))["event"] == "position", "nothing matches"
    assert filtered.records == []


async def test_a_shared_inbox_has_a_token_of_its_own(feeds: InboxFeeds) -> None:
    for user in ("cy", "dan"):
        await feeds.members.join(GROUP, user)
    await feeds.send("eve", 2)
    device = feeds.view(feeds.share(name_shared_inbox(GROUP))["token"], begin="rows")
    await device.take(feeds.console.url, "rows")
    assert references(device) == await feeds.messages("dan")
    own = feeds.view(feeds.share("dan")["token"], begin="rows")
    await own.take(feeds.console.url, "rows")
    assert references(own) == []


def test_a_right_that_has_ended_is_noticed_within_5_s() -> None:
    """Feeds confirm their rights every ``CONFIRM_S``, by a list that is ``FRESH_S`` old at most."""
    assert CONFIRM_S + FRESH_S <= REVOKED_S_MAX


async def test_a_revoked_token_ends_its_open_feeds(feeds: InboxFeeds) -> None:
    mine, other = feeds.share("ada"), feeds.share("ada")
    revoked, kept = feeds.view(mine["token"]), feeds.view(other["token"])
    async with kept.connect(feeds.console.url) as events:
        assert (await anext(events))["event"] == "ready"
        async with revoked.connect(feeds.console.url) as revoked_events:
            assert (await anext(revoked_events))["event"] == "ready"
            with feeds.admin() as admin:
                await asyncio.to_thread(
                    admin.call_json, "RowtideRevokeToken", {"token_id": mine["token_id"]}
                )
            async with asyncio.timeout(WAIT_S_MAX):
                rest = [event async for event in revoked_events]
        assert rest[-1]["event"] == "end"
        assert rest[-1]["data"]["code"] == "access_revoked"
        # The user's other token still follows the inbox.
        await feeds.send("eve", 1)
        async with asyncio.timeout(WAIT_S_MAX):
            async for event in events:
                if event["event"] == "records":
                    break
    assert references(kept) == await feeds.messages("ada")
    assert (await refusal_of(feeds.view(mine["token"]), feeds))[0] == 403
    assert (await refusal_of(revoked, feeds))[0] == 403
