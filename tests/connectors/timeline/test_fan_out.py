"""The fan-out of a real server: processes that are killed, members that change, and its inboxes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rowtide.client import (
    AsyncClient,
    Conversations,
    Cursors,
    Inbox,
    InboxEntry,
    Inboxes,
    Members,
    TimelineEntry,
    Timelines,
    TimelineSchema,
    inbox_schema,
)
from rowtide.connectors.rows import SinkRow
from rowtide.core.values.errors import Rejected
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare, rewind, yaml_of
from tests.connectors.runtime.conftest import Run, connector
from tests.support.waiting import until

__all__ = ["connector"]

pytestmark = pytest.mark.system

Result = TypeVar("Result")
Found = list[tuple[str, int]]

SEED = 28
KILLS = 6


class Chat:
    """Tables with the names of one test: tests share the server. Calls run until they are done."""

    def __init__(self, server: Ready, name: str) -> None:
        self._runner = asyncio.Runner()
        client = self.client = AsyncClient(**server._asdict())
        self.name = name
        self.store = Timelines(client, TimelineSchema(f"{name}_store"))
        self.cursors = Cursors(client, f"{name}_cursors")
        self.members = Members(client, self.cursors, f"{name}_members")
        self.sync = Timelines(client, inbox_schema(f"{name}_sync"))
        self.inboxes = Inboxes(self.store, self.sync, self.members, self.cursors)
        self.do(self.store.create())
        self.do(self.cursors.create())
        self.do(self.members.create())

    def do(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Return what a call returns."""
        return self._runner.run(call)

    def close(self) -> None:
        self.do(self.client.close())
        self._runner.close()

    def document(self, *, transform: str = "", **more: object) -> str:
        """Return the file that declares the fan-out."""
        sink = {"kind": "timeline", "members": self.members.table, "inbox": f"{self.name}_sync"}
        document = {"table": f"{self.name}_store", "sink": sink | more, "lease_ms": 1000}
        return yaml_of(self.name, document | ({"transform": transform} if transform else {}))

    def join(self, name: str, users: Sequence[str]) -> None:
        for user in users:
            self.do(self.members.join(name, user))

    def send(self, name: str, count: int = 1) -> list[TimelineEntry]:
        """Store messages."""
        return self.do(self.store.of(name).store_many([{"sender": "ada", "text": "x"}] * count))

    def inbox(self, user: str) -> Found:
        """Return the conversation and the id of each message in an inbox, the oldest first."""

        async def read() -> Found:
            return [(e.conversation, e.entry.id) async for e in self.inboxes.of(user).after(0)]

        try:
            return self.do(read())
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            return []  # The sink has not created the table yet.

    def wait_for(self, user: str, count: int, processes: ConnectorProcesses) -> None:
        """Wait until an inbox has so many messages."""
        until(lambda: len(self.inbox(user)) >= count, processes.said)

    def require(self, user: str, wanted: Found, processes: ConnectorProcesses) -> None:
        """Wait until an inbox has all messages; it must have them once, in order."""
        self.wait_for(user, len(wanted), processes)
        found = self.inbox(user)
        assert sorted(found) == sorted(wanted), user
        for name in {conversation for conversation, _ in wanted}:
            its = [id for conversation, id in found if conversation == name]
            assert its == sorted(its), f"{user}: {name}"


@pytest.fixture
def chat(server: Ready, request: pytest.FixtureRequest) -> Iterator[Chat]:
    """The tables of a test."""
    opened = Chat(server, f"fan_{abs(hash(request.node.name)) % 10**8}")
    yield opened
    opened.close()


@pytest.fixture
def processes(server: Ready, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """No process yet; the test starts them."""
    with ExitStack() as closing:
        yield ConnectorProcesses(server, tmp_path, closing)


def test_each_inbox_has_each_message_once_though_the_fan_out_is_killed(
    chat: Chat, server: Ready, processes: ConnectorProcesses
) -> None:
    groups = {
        "ab": ["ada", "bob"],
        "abc": ["ada", "bob", "cy"],
        "all": [*"abcdefgh", "ada", "bob", "cy"],
    }
    for name, users in groups.items():
        chat.join(name, users)
    declare(server, chat.document())
    chance = random.Random(SEED)
    sent: Found = []
    for _ in range(KILLS):
        processes.start()
        for _ in range(25):
            name = chance.choice(list(groups))
            sent += [(name, entry.id) for entry in chat.send(name, 3)]
        # It is killed while it has some of them: somewhere between its steps.
        reached = len(sent) - chance.randrange(75)
        chat.wait_for("ada", reached, processes)
        processes.kill()
    processes.start()
    for user in sorted({user for users in groups.values() for user in users}):
        chat.require(user, [at for at in sent if user in groups[at[0]]], processes)
    rewind(server, chat.name, "oldest")
    sent += [("all", entry.id) for entry in chat.send("all")]
    chat.require("h", [at for at in sent if at[0] == "all"], processes)
    processes.stop_all()


def test_recalls_and_updates_show_when_an_inbox_is_read(
    chat: Chat, server: Ready, processes: ConnectorProcesses
) -> None:
    chat.join("group", ["ada", "bob"])
    recalled, edited = chat.send("group", 2)
    declare(server, chat.document())
    processes.start()
    chat.require("bob", [("group", recalled.id), ("group", edited.id)], processes)
    chat.do(chat.store.of("group").delete(recalled.id))
    chat.do(chat.store.of("group").update(edited.id, {"text": "new"}))
    conversations = Conversations(chat.store, chat.cursors, inboxes=chat.inboxes)
    newest, oldest = chat.do(conversations.inbox("bob"))
    assert newest.entry == TimelineEntry(edited.id, {"sender": "ada", "text": "new"})
    assert oldest.entry == TimelineEntry(recalled.id, {"sender": "ada"})
    assert (newest.is_recalled, oldest.is_recalled) == (False, True)
    processes.stop_all()


def refuse_bad(row: SinkRow) -> SinkRow:
    """Return a row unless its message is bad; a transform."""
    if (row.columns or {}).get("text") == "bad":
        raise ValueError("a bad message")
    return row


def test_a_parked_message_is_written_once_when_it_is_retried(
    chat: Chat, server: Ready, processes: ConnectorProcesses, connector: Run
) -> None:
    chat.join("group", ["ada", "bob"])
    bad = chat.do(chat.store.of("group").store({"text": "bad"}))
    good = chat.do(chat.store.of("group").store({"text": "good"}))
    last = chat.do(chat.store.of("other").store({"text": "bad"}))
    refusing = f"{refuse_bad.__module__}:refuse_bad"
    declare(server, chat.document(transform=refusing))
    processes.start(chat.name)
    chat.require("ada", [("group", good.id)], processes)
    until(
        lambda: len(connector("parked", "list", chat.name, "-o", "json")) == 2,
        processes.said,
    )
    chat.join("other", ["ada"])
    declare(server, chat.document())
    # Until then the earlier run may take the request, and refuse the messages again.
    until(lambda: processes.said().count(" starts") == 2, processes.said)
    connector("parked", "retry", chat.name, "--all")
    wanted = [("group", bad.id), ("group", good.id), ("other", last.id)]
    chat.wait_for("ada", 3, processes)
    assert sorted(chat.inbox("ada")) == wanted
    for to in ("oldest", "rows"):
        rewind(server, chat.name, to)
        wanted += [("other", chat.send("other")[0].id)]
        chat.wait_for("ada", len(wanted), processes)
        assert sorted(chat.inbox("ada")) == sorted(wanted)
    processes.stop_all()


def test_members_get_what_is_stored_while_they_are_in(
    chat: Chat, server: Ready, processes: ConnectorProcesses
) -> None:
    declare(server, chat.document())
    processes.start()
    chat.join("group", ["ada", "bob"])
    [first] = chat.send("group")
    chat.require("bob", [("group", first.id)], processes)
    chat.do(chat.members.leave("group", "bob"))
    chat.join("group", ["cy"])
    [second] = chat.send("group")
    both = [("group", first.id), ("group", second.id)]
    chat.require("ada", both, processes)
    chat.require("cy", both[1:], processes)
    assert chat.inbox("bob") == both[:1], "what one has stays"
    processes.stop_all()


def test_a_device_follows_its_inbox_and_those_that_it_shares(
    chat: Chat, server: Ready, processes: ConnectorProcesses
) -> None:
    chat.join("small", ["ada", "bob"])
    chat.join("large", ["ada", "bob", "cy", "dan"])
    declare(server, chat.document(copies_max=3))
    processes.start()
    first = [(name, chat.send(name)[0].id) for name in ("small", "large")]
    chat.require("ada", first, processes)
    assert chat.inbox("dan") == [first[1]]

    async def count_rows() -> int:
        return len([row async for row in chat.client.range(f"{chat.name}_sync")])

    assert chat.do(count_rows()) == 3, "two of the small conversation, one of the large one"
    seen = chat.do(follow(chat, 8))
    sent = [(entry.conversation, entry.entry.id) for entry in seen]
    assert len(set(sent)) == 8
    inbox = chat.inboxes.of("ada")
    for at, entry in enumerate(seen):
        # A device that comes back at any of its positions gets all that it has not seen.
        rest = chat.do(collect(inbox, str(entry.position)))
        assert set(sent[at + 1 :]) == {(one.conversation, one.entry.id) for one in rest}
    for limit in (1, 2, 3, 20):
        found: list[InboxEntry] = []
        while page := chat.do(inbox.page(before=found[-1] if found else None, limit=limit)):
            assert len(page) <= limit
            found += page
        assert sorted((one.conversation, one.entry.id) for one in found) == sorted(sent)
        assert [one.id for one in found] == sorted((one.id for one in found), reverse=True)
    processes.stop_all()


async def follow(chat: Chat, count: int) -> list[InboxEntry]:
    """Return the first entries that a device follows; each one seen has another one sent."""
    seen: list[InboxEntry] = []
    async with asyncio.timeout(60):
        async for entry in chat.inboxes.of("ada").follow():
            seen.append(entry)
            if len(seen) == count:
                break
            if len(seen) >= 2:
                name = "large" if len(seen) % 2 else "small"
                await chat.store.of(name).store({"sender": "bob"})
    return seen


async def collect(inbox: Inbox, after: str) -> list[InboxEntry]:
    return [entry async for entry in inbox.after(after)]


@pytest.mark.parametrize("wrong", ["store", "members", "absent"])
def test_tables_that_the_fan_out_cannot_use_are_reported(
    chat: Chat, server: Ready, processes: ConnectorProcesses, wrong: str
) -> None:
    """The connector fails with the table's name and what it must have."""
    from rowtide.cli.client import ProtocolClient

    tables = {"store": "fan_plain", "members": f"{chat.name}_store", "absent": "fan_absent"}
    if wrong == "store":
        chat.do(chat.client.create_table("fan_plain", {"k": str}, stream_hours=1, if_missing=True))
    document = {
        "table": tables["store"] if wrong == "store" else f"{chat.name}_store",
        "sink": {
            "kind": "timeline",
            "members": chat.members.table if wrong == "store" else tables[wrong],
            "inbox": f"{chat.name}_sync",
        },
    }
    declare(server, yaml_of(chat.name, document))
    processes.start(chat.name)
    expected = "There is no table" if wrong == "absent" else "must have a key of two columns"
    until(lambda: expected in processes.said(), processes.said)
    assert tables[wrong] in processes.said()
    processes.stop_all()
    with ProtocolClient(**server._asdict()) as admin:
        assert f"{chat.name}_sync" not in admin.list_table()
