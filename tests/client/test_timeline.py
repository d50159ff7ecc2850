"""Timelines on a real server: messages, scans, followers, exactly one send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rowtide.client import (
    AsyncClient,
    BatchFailed,
    ConditionFailed,
    FirstVersionMessage,
    OutcomeUnknown,
    Rejected,
    Timeline,
    TimelineEntry,
    TimelineExpired,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
    column,
)
from rowtide.client.http_exchange import HttpAnswer
from rowtide.client.timeline.message import Fields
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.testing.server import Server
from tests.client.timelines import collect, run, take

pytestmark = pytest.mark.system

Access = dict[str, Any]


@pytest.fixture
def read_only(access: Access, rowtide_server: Server) -> Access:
    """How a client with a key that may only read reaches the test's instance."""
    fields = {"admin": False, "read_only": True, "instances": [access["instance"]]}
    with rowtide_server.client() as admin:
        made = admin.call_json("RowtideCreateKey", fields)
    return {**access, **{name: made[name] for name in ("access_key_id", "access_key_secret")}}


def test_a_message_is_read_as_it_was_stored(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("group:7")
        message: Fields = {
            "text": "你好",
            "n": -(2**63),
            "x": 1.5,
            "ok": True,
            "raw": b"\0",
            "tags": ["a", ""],
        }
        stored = await chat.store(message)
        assert stored.fields == message
        assert await chat.get(stored.id) == stored
        await chat.update(stored.id, {"text": "recalled"}, delete=["raw", "tags"])
        changed = await chat.get(stored.id)
        assert changed is not None
        assert changed.fields == {"text": "recalled", "n": -(2**63), "x": 1.5, "ok": True}
        await chat.delete(stored.id)
        assert await chat.get(stored.id) is None
        with pytest.raises(ConditionFailed):
            await chat.update(stored.id, {"text": "again"})
        assert await collect(chat.forward()) == []
        await chat.delete(stored.id)

    run(access, check)


def test_a_table_is_made_as_the_java_library_makes_it(access: Access) -> None:
    async def check(timelines: Timelines) -> pb.DescribeTableResponse:
        endpoint = timelines.client.endpoint
        request = pb.DescribeTableRequest(table_name="im_sync")
        return await endpoint.call("DescribeTable", request, pb.DescribeTableResponse)

    identifier = {"user": str, "box": int, "device": bytes}
    found = run(access, check, TimelineSchema("im_sync", identifier, "seq", ttl_s=604_800))
    key = [
        (c.name, c.type, c.HasField("option") and c.option) for c in found.table_meta.primary_key
    ]
    assert key == [
        ("user", pb.STRING, False),
        ("box", pb.INTEGER, False),
        ("device", pb.BINARY, False),
        ("seq", pb.INTEGER, pb.AUTO_INCREMENT),
    ]
    options = found.table_options
    assert (options.time_to_live, options.max_versions) == (604_800, 1)
    assert options.deviation_cell_version_in_sec == 86_400 * 365 * 100


def test_scans_go_both_ways_with_bounds_limits_and_filters(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat, other = timelines.of("a"), timelines.of("b")
        entries = await chat.store_many([{"n": number} for number in range(250)])
        await other.store({"n": -1})
        ids = [entry.id for entry in entries]
        assert ids == sorted(set(ids))
        assert await collect(chat.forward()) == entries[:100]
        assert await collect(chat.forward(limit=None)) == entries
        assert await collect(chat.backward()) == entries[:149:-1]
        assert await collect(chat.forward(ids[3], ids[6])) == entries[3:6]
        assert await collect(chat.backward(ids[6], ids[3])) == entries[6:3:-1]
        few = column("n") >= 248
        assert await collect(chat.forward(filter=few, limit=1)) == entries[248:249]
        assert await chat.latest_id() == ids[-1]
        assert await chat.latest() == entries[-1]
        assert await timelines.of("empty").latest_id() == 0
        assert await timelines.of("empty").latest() is None
        with pytest.raises(Rejected, match="from_id < to_id"):
            chat.forward(5, 5)
        with pytest.raises(Rejected, match="from_id > to_id"):
            chat.backward(0)
        with pytest.raises(Rejected, match="limit of a scan"):
            chat.forward(limit=0)

    run(access, check)


def test_large_messages_are_stored_in_as_many_requests_as_needed(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        large = [{"raw": bytes([number]) * 1_500_000} for number in range(5)]
        entries = await timelines.of("a").store_many(large)
        assert [entry.fields for entry in entries] == large
        assert [entry async for entry in timelines.of("a").forward()] == entries

    run(access, check)


def test_a_failed_batch_says_what_became_of_each_message(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("a")
        # The server bounds the text of the column that its index has; the client does not know it.
        messages: list[dict[str, Any]] = [{"n": number} for number in range(202)]
        messages[1] = {"__message_id": "long" * 500}
        with pytest.raises(BatchFailed) as failure:
            await chat.store_many(messages)
        outcomes = failure.value.outcomes
        assert len(outcomes) == 202
        assert isinstance(outcomes[1].failure, Rejected)
        assert [outcome.failure is None for outcome in outcomes[200:]] == [False, False]
        stored = [entry.id async for entry in chat.forward(limit=None)]
        assert stored == [outcome.key["sequence_id"] for outcome in outcomes if outcome.key]

    run(access, check)


def test_manual_ids_are_those_of_the_writer(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        device = timelines.of(7)
        await device.store_many([{"n": 1}, {"n": 2}], ids=[20, 10])
        await device.store({"n": 3}, id=2**63 - 2)
        found = await collect(device.forward())
        assert [(entry.id, entry.fields["n"]) for entry in found] == [
            (10, 2),
            (20, 1),
            (2**63 - 2, 3),
        ]
        with pytest.raises(Rejected, match="'sequence_id' is manual"):
            await device.store({"n": 1})
        for id, words in [(0, "1 to"), (-1, "1 to"), (2**63 - 1, "1 to"), (2**63, "64 bits")]:
            with pytest.raises(Rejected, match=words):
                await device.store({"n": 1}, id=id)
        with pytest.raises(Rejected, match="no index by message id"):
            await device.send({"n": 1}, message_id="m")

    schema = TimelineSchema("device", {"device": int}, manual_sequence=True, ttl_s=604_800)
    run(access, check, schema)


def test_a_repeated_send_returns_the_first_entry(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        async with AsyncClient(**access) as other:
            processes = [timelines.of("a"), Timelines(other, timelines.schema).of("a")]
            async with asyncio.TaskGroup() as tasks:
                sends = [
                    tasks.create_task(processes[n % 2].send({"n": n}, message_id=f"m{n % 3}"))
                    for n in range(12)
                ]
            sent = [task.result() for task in sends]
        entries = await collect(timelines.of("a").forward())
        assert len(entries) == 3
        assert {entry.id for entry in sent} == {entry.id for entry in entries}
        assert sent[0] == sent[3] == sent[6] == sent[9]
        again = await timelines.of("b").send({"n": 0}, message_id="m0")
        assert again.id not in {entry.id for entry in entries}
        for message_id, words in [("", "0 bytes"), ("x" * 1025, "1025 bytes")]:
            with pytest.raises(Rejected, match=words):
                await timelines.of("a").send({"n": 1}, message_id=message_id)

    run(access, check)


def test_a_send_whose_answers_are_lost_is_stored_once(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("room", 1)
        endpoint = timelines.client.endpoint
        exchange = endpoint.exchange
        lost = 0

        async def lose_answers(operation: str, body: bytes, more: Any = None) -> HttpAnswer:
            nonlocal lost
            answer = await exchange(operation, body, more)
            if operation == "RowtidePutOnce" and lost < 8:
                lost += 1
                raise OutcomeUnknown("The answer was lost.")
            return answer

        endpoint.exchange = lose_answers  # type: ignore[method-assign]
        for number in range(4):
            message = {"n": number}
            while True:
                try:
                    await chat.send(message, message_id=f"m{number}")
                except OutcomeUnknown:
                    continue
                break
        assert lost == 8
        assert [entry.fields["n"] async for entry in chat.forward()] == [0, 1, 2, 3]
        assert await collect(timelines.of("room", 2).forward()) == []

    run(access, check, TimelineSchema("rooms", {"site": str, "room": int}))


@pytest.mark.parametrize("stream_hours", [24, 0])
def test_a_follower_gets_each_message_once_and_resumes_by_id(
    access: Access, stream_hours: int
) -> None:
    async def check(timelines: Timelines) -> None:
        chat, other = timelines.of("a"), timelines.of("b")
        first = await chat.store({"n": 0})
        async with asyncio.TaskGroup() as tasks:
            follower = tasks.create_task(take(chat.follow(), 21))
            for number in range(1, 21):
                await other.store({"n": -number})
                await chat.store({"n": number})
        followed = follower.result()
        assert followed == await collect(chat.forward())
        assert followed[0] == first
        assert await take(chat.follow(after=followed[9].id), 11) == followed[10:]

    run(access, check, TimelineSchema("im_store", stream_hours=stream_hours))


def test_a_follower_of_a_dropped_table_ends_with_its_code(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("a")
        await chat.store({"n": 1})
        seen = asyncio.Event()

        async def follow() -> None:
            async for _ in chat.follow():
                seen.set()

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(_failure_of(follow))
            await seen.wait()
            await timelines.drop()
        assert following.result().code == "OTSObjectNotExist"

    run(access, check)


async def _failure_of(call: Callable[[], Awaitable[object]]) -> Rejected:
    async with asyncio.timeout(60):
        with pytest.raises(Rejected) as failure:
            await call()
    return failure.value


def test_a_device_that_was_away_too_long_is_told_the_oldest_id(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        inbox = timelines.of("ada")
        entry = await inbox.store({"n": 1})
        eight_days_us = 8 * 86_400 * 1_000_000
        with pytest.raises(TimelineExpired) as failure:
            await take(inbox.follow(after=entry.id - eight_days_us), 1)
        assert (failure.value.oldest, failure.value.code) == (entry.id, "OTSTrimmedDataAccess")
        assert await collect(inbox.after(0)) == [entry]
        assert await collect(inbox.after(entry.id - 1)) == [entry]
        assert await collect(inbox.after(entry.id)) == []

    run(access, check, TimelineSchema("im_sync", ("user",), ttl_s=604_800))


def test_messages_of_version_1_are_stored_and_read(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("a")
        message = FirstVersionMessage("m1", "é" * 1_000_000, {"sender": "ada"})
        entry = await chat.store(message.fields())
        found = await chat.get(entry.id)
        assert found is not None
        assert FirstVersionMessage.read(found.fields) == message

    run(access, check)


def test_a_meta_row_and_its_timeline_are_independent(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        metas = TimelineMetas(
            timelines.client, TimelineMetaSchema("im_meta", lists=("members", "odd"))
        )
        assert await metas.create()
        assert not await metas.create(if_missing=True)
        await metas.put(["a"], {"name": "Group", "members": ["ada", "bob"], "odd": "no JSON"})
        await metas.update(["a"], {"size": 2}, delete=["name"])
        await metas.update(["b"], {"name": "Other"})
        found = await metas.get(["a"])
        assert found is not None
        assert found.identifier == ("a",)
        assert found.fields == {"members": ["ada", "bob"], "odd": "no JSON", "size": 2}
        assert await timelines.of("a").latest_id() == 0
        assert (await timelines.of("c").store({"n": 1})).id
        assert await metas.get(["c"]) is None
        assert [meta.identifier async for meta in metas.scan(filter=column("size") == 2)] == [
            ("a",)
        ]
        await metas.delete(["a"])
        assert await metas.get(["a"]) is None
        await metas.drop()

    run(access, check)


def test_a_message_with_an_empty_field_list_or_many_fields(access: Access) -> None:
    async def check(timelines: Timelines) -> None:
        chat = timelines.of("a")
        wide = {f"f{number}": number for number in range(1024)}
        assert (await chat.get((await chat.store(wide)).id)) is not None
        whole = {"text": "x" * (2 * 1024 * 1024)}
        entry = await chat.store(whole)
        assert await chat.get(entry.id) == TimelineEntry(entry.id, {**whole})
        bare = await chat.store({})
        assert await chat.get(bare.id) == TimelineEntry(bare.id, {})
        assert (await collect(chat.backward(limit=1))) == [bare]

    run(access, check)


def test_a_read_only_key_stores_nothing(access: Access, read_only: Access) -> None:
    async def check(timelines: Timelines) -> None:
        async with AsyncClient(**read_only) as client:
            chat: Timeline = Timelines(client, timelines.schema).of("a")
            with pytest.raises(Rejected) as failure:
                await chat.store({"n": 1})
            assert failure.value.code == "OTSNoPermissionAccess"
            assert await chat.latest_id() == 0

    run(access, check)
