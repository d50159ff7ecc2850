"""Feeds of a real console over a real server: their forms, their errors, and how they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from multidict import MultiDict

from rowtide.cli.client import ProtocolClient
from rowtide.console.feed.feed_position import KIND_OVER, FeedPosition, encode_token, table_tag
from rowtide.console.feed.feed_request import parse_request
from rowtide.console.feed.open_feed import OpenFeeds
from rowtide.console.feed.table_hubs import TableHubs
from rowtide.console.web.refusals import RequestRefused
from tests.console.feed.conftest import Followed
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.console.feed.memory_table import ACCESS
from tests.support.consoles import RunningConsole

pytestmark = pytest.mark.system

END_S_MAX = 30.0


async def refusal_of(follower: FeedClient, url: str) -> tuple[int, str]:
    """Return status and words of a request that is refused."""
    with pytest.raises(Refusal) as refused:
        await follower.take(url, "ready")
    words = json.loads(refused.value.text)["error"]["message"]
    assert "Traceback" not in refused.value.text
    return refused.value.status, words


@pytest.mark.parametrize("form", ["sse", "ndjson"])
async def test_a_change_comes_after_ready_in_each_form(followed: Followed, form: str) -> None:
    followed.create()
    follower = followed.follow(format=form)
    async with follower.connect(followed.url) as events:
        ready = await anext(events)
        await asyncio.to_thread(followed.put, "a", n=1, text="né \u2028", real=2.0, raw=b"\x00")
        change = await anext(events)
    assert ready["event"] == "ready"
    assert ready["data"]["table"] == followed.name
    [record] = change["data"]["records"]
    assert record["kind"] == "put"
    assert record["key"] == {"k": "a"}
    assert record["columns"] == {
        "n": 1,
        "text": "né \u2028",
        "real": {"double": "2.0"},
        "raw": {"base64": "AA=="},
    }
    assert change["id"] != ready["id"]


async def test_a_websocket_has_the_same_events(followed: Followed) -> None:
    followed.create()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(followed.url + followed.path, headers=followed.headers) as socket,
    ):
        ready = await socket.receive_json(timeout=END_S_MAX)
        await asyncio.to_thread(followed.put, "a", text="x" * 300)
        change = await socket.receive_json(timeout=END_S_MAX)
        await asyncio.to_thread(followed.put, "b", text="y" * 100_000)
        large = await socket.receive_json(timeout=END_S_MAX)
    assert (ready["event"], change["event"]) == ("ready", "records")
    assert change["data"]["records"][0]["columns"]["text"] == "x" * 300
    assert large["data"]["records"][0]["columns"]["text"] == "y" * 100_000


async def test_one_websocket_has_many_feeds(followed: Followed) -> None:
    followed.create()
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{followed.url}/stream", headers=followed.headers) as socket,
    ):
        for number in range(8):
            path = f"{followed.path}?filter=n%20%3D%20{number}"
            await socket.send_json({"open": f"feed {number}", "path": path})
        found = [await socket.receive_json(timeout=END_S_MAX) for _ in range(8)]
        assert {event["event"] for event in found} == {"ready"}
        await socket.send_json({"close": "feed 0"})
        # Messages are taken in their order: after this answer nothing comes under its name.
        await socket.send_json({"open": "x", "path": "/stream/nowhere"})
        refused = await socket.receive_json(timeout=END_S_MAX)
        assert (refused["event"], refused["data"]["status"]) == ("error", 400)
        for number in range(8):
            await asyncio.to_thread(followed.put, "a", n=number)
        changes = [await socket.receive_json(timeout=END_S_MAX) for _ in range(7)]
        got = {event["feed"]: event["data"]["records"][0]["columns"]["n"] for event in changes}
        assert got == {f"feed {number}": number for number in range(1, 8)}
        await socket.send_json({"open": "feed 1", "path": path})
        await socket.send_str("{")
        errors = [await socket.receive_json(timeout=END_S_MAX) for _ in range(2)]
        assert [event["event"] for event in errors] == ["error"] * 2
        assert sorted(event["data"]["status"] for event in errors) == [400, 409]


async def test_a_feed_resumes_at_the_next_record(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    await follower.take(followed.url, "ready")
    for number in range(3):
        await asyncio.to_thread(followed.put, "a", n=number)
    await follower.take(followed.url, "records")
    while len(follower.records) < 3:
        await follower.take(followed.url, "records")
    assert [record["columns"]["n"] for record in follower.records] == [0, 1, 2]
    after = FeedClient(
        followed.path, headers=followed.headers, after=follower.events[0]["id"], format="sse"
    )
    await after.take(followed.url, "records")
    assert after.records[0]["columns"]["n"] == 0


async def test_rows_come_before_changes(followed: Followed) -> None:
    followed.create()
    for number in range(5):
        await asyncio.to_thread(followed.put, f"k{number}", n=number)
    follower = followed.follow(begin="rows")
    async with follower.connect(followed.url) as events:
        assert (await anext(events))["event"] == "ready"
        rows = await anext(events)
        await asyncio.to_thread(followed.put, "k9", n=9)
        changes = await anext(events)
    assert rows["event"] == "rows"
    assert [row["columns"]["n"] for row in rows["data"]["rows"]] == [0, 1, 2, 3, 4]
    assert rows["data"]["done"] is True
    assert changes["data"]["records"][0]["key"] == {"k": "k9"}


async def test_a_value_of_two_mebibytes_comes_whole(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    async with follower.connect(followed.url) as events:
        await anext(events)
        await asyncio.to_thread(followed.put, "a", text="<b>" * 699_050)
        change = await anext(events)
    assert change["data"]["records"][0]["columns"]["text"] == "<b>" * 699_050


async def test_an_unknown_table_is_404(followed: Followed) -> None:
    status, words = await refusal_of(followed.follow(), followed.url)
    assert status == 404
    assert f"has no table '{followed.name}'" in words


async def test_a_table_without_a_stream_says_how_to_enable_it(followed: Followed) -> None:
    followed.create(stream_hours=0)
    status, words = await refusal_of(followed.follow(), followed.url)
    assert status == 404
    assert f"rowtide table update {followed.name} --stream 24" in words


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"filter": "n >"}, "filter: 'n >' has 'the end' in place of a value"),
    ({"filter": "not " * 1000 + "n = 1"}, "nested deeper"),
    ({"filter": "n = " + "9" * 5000}, "a number of at most 400 characters"),
    ({"filter": "n" * 100_000}, "the most is 16384"),
    ({"begin": "yesterday"}, "begin must be"),
    ({"begin": "oldest", "after": "x"}, "either after or begin"),
    ({"mode": "some"}, "mode must be every or sampled"),
    ({"colums": "a"}, "Unknown parameter 'colums'"),
    ({"after": "!"}, "The position is damaged: it is not base64url"),
    ({"after": "A" * 5000}, "it has 5000 characters"),
    ({"begin": "rows", "shard": "s1"}, "leave ?shard= out"),
]


@pytest.mark.parametrize(("parameters", "reason"), REFUSED)
async def test_a_wrong_parameter_is_400_with_the_reason(
    followed: Followed, parameters: dict[str, str], reason: str
) -> None:
    followed.create()
    status, words = await refusal_of(followed.follow(**parameters), followed.url)
    assert status == 400, words
    assert reason in words


async def test_a_key_of_a_wrong_type_is_400(followed: Followed) -> None:
    followed.client.create_table(followed.name, {"k": int}, stream_hours=24)
    status, words = await refusal_of(followed.follow(key="abc"), followed.url)
    assert status == 400
    assert f"'k' of table '{followed.name}' is INTEGER, and 'abc' is no integer" in words


async def test_a_shard_that_does_not_exist_is_404(followed: Followed) -> None:
    followed.create()
    status, words = await refusal_of(followed.follow(shard="s999999"), followed.url)
    assert status == 404
    assert "has no shard 's999999'" in words


async def test_a_token_of_another_table_or_cut_anywhere_is_400(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    await follower.take(followed.url, "ready")
    for length in range(1, len(follower.token), 7):
        cut = followed.follow(after=follower.token[:length])
        status, words = await refusal_of(cut, followed.url)
        assert status == 400, length
        assert words.startswith("The position is damaged")
    other = Followed(followed.console, followed.console.log_in(), followed.client)
    other.create()
    status, words = await refusal_of(other.follow(after=follower.token), followed.url)
    assert status == 400
    assert words.startswith("The position belongs to another table")


async def test_nobody_follows_without_a_session(followed: Followed) -> None:
    followed.create()
    stranger = FeedClient(followed.path, headers={})
    with pytest.raises(Refusal) as refused:
        await stranger.take(followed.url, "ready")
    assert refused.value.status == 401


async def test_a_page_of_another_site_opens_no_feed(followed: Followed) -> None:
    followed.create()
    headers = {**followed.headers, "Origin": "http://evil.example"}
    stranger = FeedClient(followed.path, headers=headers)
    with pytest.raises(Refusal) as refused:
        await stranger.take(followed.url, "ready")
    assert refused.value.status == 403


async def test_a_session_has_twenty_feeds(followed: Followed) -> None:
    followed.create()
    mine = Followed(followed.console, followed.console.log_in(), followed.client)
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"{followed.url}/stream", headers=mine.headers) as socket,
    ):
        for number in range(21):
            await socket.send_json({"open": str(number), "path": followed.path})
        found = [await socket.receive_json(timeout=END_S_MAX) for _ in range(21)]
    assert [event["event"] for event in found].count("ready") == 20
    [error] = [event["data"] for event in found if event["event"] == "error"]
    assert error["status"] == 429
    assert "20 feeds" in error["message"]


async def end_of(events: Any) -> dict[str, Any]:
    """Return the data of a feed's last event."""
    async with asyncio.timeout(END_S_MAX):
        async for event in events:
            if event["event"] in ("end", "expired"):
                found: dict[str, Any] = event["data"]
                return found
    raise AssertionError("the feed ended without a word")


async def test_a_table_that_is_deleted_and_created_again_ends_the_feed(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    async with follower.connect(followed.url) as events:
        await anext(events)
        await asyncio.to_thread(followed.client.delete_table, followed.name)
        await asyncio.to_thread(followed.create)
        end = await end_of(events)
    assert end["code"] in ("stream_replaced", "table_deleted")
    status, words = await refusal_of(follower, followed.url)
    assert status == 400
    assert "another stream of this table" in words


async def test_a_stream_that_is_disabled_ends_the_feed(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    async with follower.connect(followed.url) as events:
        await anext(events)
        await asyncio.to_thread(followed.client.update_table, followed.name, stream_hours=0)
        end = await end_of(events)
    assert end["code"] == "stream_disabled"
    assert "--stream 24" in end["reason"]
    status, _ = await refusal_of(follower, followed.url)
    assert status == 404


async def test_a_key_that_is_revoked_ends_its_feeds(
    followed: Followed, console: RunningConsole
) -> None:
    followed.create()
    visitor = console.log_in()
    mine = Followed(console, visitor, followed.client)
    mine.name, mine.path = followed.name, followed.path
    follower = mine.follow()
    began_s = asyncio.get_running_loop().time()
    async with follower.connect(followed.url) as events:
        await anext(events)
        await asyncio.to_thread(revoke_key, console, visitor.key["access_key_id"])
        end = await end_of(events)
    assert end["code"] == "access_revoked"
    assert asyncio.get_running_loop().time() - began_s < END_S_MAX


def revoke_key(console: RunningConsole, key_id: str) -> None:
    """Revoke an access key."""
    ready = console.ready
    with ProtocolClient(**ready._asdict(), timeout_s=30.0) as client:
        client.call_json("RowtideRevokeKey", {"access_key_id": key_id})


async def test_a_share_token_follows_one_key_until_it_is_revoked(
    followed: Followed, console: RunningConsole
) -> None:
    followed.create()
    with ProtocolClient(**console.ready._asdict(), timeout_s=30.0) as client:
        made = client.call_json("RowtideCreateToken", {"table": followed.name, "key": "ada"})
        program = FeedClient(followed.path, headers={"Authorization": f"Bearer {made['token']}"})
        async with program.connect(followed.url) as events:
            await anext(events)
            await asyncio.to_thread(followed.put, "bob", n=1)
            await asyncio.to_thread(followed.put, "ada", n=2)
            change = await anext(events)
            assert [record["key"]["k"] for record in change["data"]["records"]] == ["ada"]
            client.call_json("RowtideRevokeToken", {"token_id": made["token_id"]})
            end = await end_of(events)
        assert end["code"] == "access_revoked"
        other = FeedClient(
            followed.path, headers={"Authorization": f"Bearer {made['token']}"}, key="bob"
        )
        with pytest.raises(Refusal) as refused:
            await other.take(followed.url, "ready")
        assert refused.value.status == 403


async def test_a_feed_that_is_over_for_good_is_204(followed: Followed) -> None:
    followed.create()
    follower = followed.follow()
    [ready] = await follower.take(followed.url, "ready")
    enabled_at_us = int(ready["data"]["stream"].rpartition("_")[2])
    tag = table_tag(followed.console.ready.instance, followed.name)
    over = followed.follow()
    over.token = encode_token(FeedPosition(tag, enabled_at_us, (), KIND_OVER))
    with pytest.raises(Refusal) as refused:
        await over.take(followed.url, "ready")
    assert (refused.value.status, refused.value.text) == (204, "")


async def test_a_console_that_is_full_says_when_to_come_again() -> None:
    async with asyncio.TaskGroup() as tasks:
        hubs = TableHubs(tasks, lambda _instance: pytest.fail("nothing is read"))
        feeds = OpenFeeds(hubs, feeds_max=0)
        request = parse_request(MultiDict(), "", "")
        with pytest.raises(RequestRefused) as refused:
            async with feeds.open(ACCESS, request):
                pytest.fail("a feed was opened")
    assert refused.value.status == 503
    assert refused.value.retry_after_s > 0
