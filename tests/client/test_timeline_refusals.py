"""What a timeline refuses: keys without a right, absent tables, too much in one message.

Each failure has the server's code and words, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from rowtide.client import (
    AsyncClient,
    BatchFailed,
    Conversations,
    Cursors,
    Everything,
    Inboxes,
    InlineFanOut,
    Members,
    Rejected,
    TimelineMetas,
    TimelineMetaSchema,
    Timelines,
    TimelineSchema,
    Unread,
    inbox_schema,
)
from rowtide.client.timeline.message import Fields
from rowtide.testing.server import Server
from tests.client.timelines import collect, take

pytestmark = pytest.mark.system

Access = dict[str, Any]
FOLLOW_S_MAX = 60.0
COLUMNS_MAX = 1024


class ChatTables:
    """All tables of a chat, as one client sees them."""

    def __init__(self, client: AsyncClient, folder: Path) -> None:
        self.client = client
        self.store = Timelines(client, TimelineSchema("im_store"), search_folder=folder)
        self.metas = TimelineMetas(client, TimelineMetaSchema("im_meta"), search_folder=folder)
        self.sync = Timelines(client, inbox_schema("im_sync"))
        self.cursors = Cursors(client)
        self.members = Members(client, self.cursors)
        self.inboxes = Inboxes(self.store, self.sync, self.members, self.cursors)
        self.conversations = Conversations(self.store, self.cursors, inboxes=self.inboxes)

    async def fill(self) -> int:
        """Create the tables, and store one message and its inbox row; return its id."""
        for table in (self.store, self.metas, self.sync, self.cursors, self.members):
            await table.create()
        await self.members.join("g", "ada")
        await self.metas.put(["g"], {"name": "Group"})
        return (await InlineFanOut(self.inboxes).store("g", {"sender": "bob", "text": "hi"})).id


@pytest.fixture
def read_only(access: Access, rowtide_server: Server) -> Access:
    """How a client with a key that may only read reaches the test's instance."""
    fields = {"admin": False, "read_only": True, "instances": [access["instance"]]}
    with rowtide_server.client() as admin:
        made = admin.call_json("RowtideCreateKey", fields)
    return {**access, **{name: made[name] for name in ("access_key_id", "access_key_secret")}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of indexes."""
    return tmp_path


def run(access: Access, folder: Path, test: Callable[[ChatTables, int], Awaitable[None]]) -> None:
    """Run a test on filled tables, with the id of their only message."""

    async def run_test() -> None:
        async with AsyncClient(**access) as client:
            tables = ChatTables(client, folder)
            await test(tables, await tables.fill())

    asyncio.run(run_test())


WRITES: dict[str, Callable[[ChatTables, int], Awaitable[object]]] = {
    "create": lambda t, _: Timelines(t.client, TimelineSchema("other")).create(),
    "drop": lambda t, _: t.store.drop(),
    "store": lambda t, _: t.store.of("g").store({"n": 1}),
    "store_many": lambda t, _: t.store.of("g").store_many([{"n": 1}]),
    "send": lambda t, _: t.store.of("g").send({"n": 1}, message_id="m"),
    "update": lambda t, id: t.store.of("g").update(id, {"text": "other"}),
    "delete": lambda t, id: t.store.of("g").delete(id),
    "put meta": lambda t, _: t.metas.put(["g"], {"name": "other"}),
    "update meta": lambda t, _: t.metas.update(["g"], {"name": "other"}),
    "delete meta": lambda t, _: t.metas.delete(["g"]),
    "drop metas": lambda t, _: t.metas.drop(),
    "read": lambda t, id: t.cursors.read("ada", "g", id),
    "join": lambda t, _: t.members.join("g", "cy"),
    "leave": lambda t, _: t.members.leave("g", "ada"),
    "mark": lambda t, _: t.members.mark_shared("g"),
    "inline fan-out": lambda t, _: InlineFanOut(t.inboxes).store("g", {"n": 1}),
}


def test_a_read_only_key_reads_everything_and_writes_nothing(
    access: Access, read_only: Access, folder: Path
) -> None:
    async def check(tables: ChatTables, id: int) -> None:
        async with AsyncClient(**read_only) as client:
            readers = ChatTables(client, folder)
            for name, write in WRITES.items():
                with pytest.raises((Rejected, BatchFailed)) as failure:
                    await write(readers, id)
                found: object = failure.value
                if isinstance(found, BatchFailed):
                    found = found.outcomes[0].failure
                assert isinstance(found, Rejected), name
                assert found.code == "OTSNoPermissionAccess", name
                assert "read-only" in found.message, name

            chat, inbox = readers.store.of("g"), readers.inboxes.of("ada")
            [entry] = await collect(chat.forward())
            assert (entry.id, entry.fields["text"], await chat.latest_id()) == (id, "hi", id)
            assert await take(chat.follow(), 1) == [entry]
            assert await chat.get(id) == entry
            assert (await readers.store.search(Everything())).total == 1
            assert (await readers.metas.search(Everything())).total == 1
            assert await readers.metas.get(["g"]) is not None
            assert await collect(readers.metas.scan()) == [await readers.metas.get(["g"])]
            assert [one.entry for one in await inbox.page()] == [entry]
            assert [one.entry for one in await take(inbox.follow(), 1)] == [entry]
            assert await collect(readers.members.of("g")) == ["ada"]
            assert await take(readers.cursors.follow("ada"), 1) == [("g", 0)]
            [conversation] = await readers.conversations.of("ada")
            assert (conversation.last, conversation.unread) == (entry, Unread(1))
        assert len(await collect(tables.store.of("g").forward())) == 1
        assert len(await collect(tables.sync.of("ada").forward())) == 1

    run(access, folder, check)


async def code_of(call: Callable[[], Awaitable[object]]) -> str:
    """Return the code of a call that is rejected."""
    async with asyncio.timeout(FOLLOW_S_MAX):
        with pytest.raises(Rejected) as failure:
            await call()
    assert failure.value.message
    return failure.value.code


@pytest.mark.parametrize("dropped", ["im_store", "im_sync", "im_cursors", "im_members"])
def test_who_follows_an_inbox_hears_that_a_table_was_dropped(
    access: Access, folder: Path, dropped: str
) -> None:
    async def check(tables: ChatTables, _id: int) -> None:
        seen = asyncio.Event()

        async def follow() -> None:
            async for _ in tables.inboxes.of("ada").follow():
                seen.set()

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(code_of(follow))
            await seen.wait()
            await tables.client.delete_table(dropped)
            # What the follower needs next is read when the inbox changes.
            if dropped != "im_sync":
                row: Fields = {"conversation": "g", "message_id": 1}
                await tables.sync.of("ada").store(row)
        assert following.result() == "OTSObjectNotExist"

    run(access, folder, check)


def test_who_follows_cursors_hears_that_their_table_was_dropped(
    access: Access, folder: Path
) -> None:
    async def check(tables: ChatTables, _id: int) -> None:
        seen = asyncio.Event()

        async def follow() -> None:
            async with aclosing(cast("Any", tables.cursors.follow("ada"))) as cursors:
                async for _ in cursors:
                    seen.set()

        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(code_of(follow))
            await seen.wait()
            await tables.client.delete_table(tables.cursors.table)
        assert following.result() == "OTSObjectNotExist"

    run(access, folder, check)


def test_absent_tables_are_reported_by_each_read(access: Access, folder: Path) -> None:
    async def check() -> None:
        async with AsyncClient(**access) as client:
            tables = ChatTables(client, folder)
            chat, inbox = tables.store.of("g"), tables.inboxes.of("ada")
            reads: list[Callable[[], Awaitable[object]]] = [
                lambda: collect(chat.forward()),
                lambda: collect(chat.after(1)),
                lambda: take(chat.follow(), 1),
                lambda: chat.send({"n": 1}, message_id="m"),
                lambda: tables.store.search(Everything()),
                lambda: tables.metas.search(Everything()),
                lambda: tables.metas.get(["g"]),
                lambda: tables.cursors.of("ada"),
                lambda: tables.cursors.read("ada", "g", 1),
                lambda: take(tables.cursors.follow("ada"), 1),
                lambda: tables.conversations.of("ada"),
                lambda: tables.conversations.unread("ada", "g"),
                lambda: inbox.page(),
                lambda: collect(inbox.after(0)),
                lambda: take(inbox.follow(), 1),
                lambda: tables.members.join("g", "ada"),
            ]
            for number, read in enumerate(reads):
                assert await code_of(read) == "OTSObjectNotExist", number

    asyncio.run(check())


def test_a_timeline_and_its_meta_row_need_each_other_nowhere(access: Access, folder: Path) -> None:
    async def check(tables: ChatTables, _id: int) -> None:
        await tables.metas.put(["silent"], {"name": "no message"})
        await tables.store.of("bare").store({"sender": "bob", "text": "no meta row"})
        await tables.members.join("silent", "ada")
        await tables.members.join("bare", "ada")
        found = {one.name: one for one in await tables.conversations.of("ada")}
        assert set(found) == {"g", "silent", "bare"}
        assert (found["silent"].last, found["silent"].unread) == (None, Unread(0))
        assert found["bare"].unread == Unread(1)
        assert await tables.metas.get(["bare"]) is None
        assert await collect(tables.store.of("silent").forward()) == []
        metas = await tables.metas.search(Everything())
        assert [one.identifier for one in metas.hits] == [("g",), ("silent",)]
        hits = await tables.store.search(Everything())
        assert [hit.identifier for hit in hits.hits] == [("bare",), ("g",)]

    run(access, folder, check)


def test_a_message_has_1024_fields_and_no_more(access: Access, folder: Path) -> None:
    async def check(tables: ChatTables, id: int) -> None:
        chat = tables.store.of("wide")
        wide: dict[str, Any] = {f"f{number}": number for number in range(COLUMNS_MAX)}
        entry = await chat.store(wide)
        assert await chat.get(entry.id) == entry
        await tables.metas.put(["wide"], wide)
        more = {**wide, "one": 1}
        refused: list[Callable[[], Awaitable[object]]] = [
            lambda: chat.store(more),
            lambda: chat.store_many([{"n": 1}, more]),
            # The message id is a field, too.
            lambda: chat.send(wide, message_id="m"),
            lambda: tables.store.of("g").update(id, more),
            lambda: tables.metas.put(["wide"], more),
            lambda: tables.metas.update(["wide"], more),
        ]
        for number, write in enumerate(refused):
            assert await code_of(write) == "OTSOutOfColumnCountLimit", number
        assert await collect(chat.forward()) == [entry]

    run(access, folder, check)


BAD_INBOX_ROWS: list[dict[str, Any]] = [
    {"text": "a message, not a reference"},
    {"conversation": "g"},
    {"conversation": "g", "message_id": "1"},
    {"conversation": 7, "message_id": 1},
]


@pytest.mark.parametrize("row", BAD_INBOX_ROWS)
def test_a_row_that_no_fan_out_wrote_is_named(
    access: Access, folder: Path, row: dict[str, Any]
) -> None:
    async def check(tables: ChatTables, _id: int) -> None:
        bad = await tables.sync.of("ada").store(row)
        for read in (
            tables.inboxes.of("ada").page,
            lambda: collect(tables.inboxes.of("ada").after()),
        ):
            with pytest.raises(Rejected, match=f"Row {bad.id} of an inbox refers to no message"):
                await read()

    run(access, folder, check)
