"""Random stores, updates, deletes, scans and cursors against a list in memory.

A history runs on a timeline of its own, on one table of one server. Beside it another timeline of
the same table is written, which must not be seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rowtide.client import (
    AsyncClient,
    ConditionFailed,
    Conversations,
    Cursors,
    OutcomeUnknown,
    TimelineEntry,
    Timelines,
    TimelineSchema,
    Unread,
    column,
)
from rowtide.client.http_exchange import HttpAnswer
from rowtide.client.timeline.message import Fields
from tests.client.timelines import collect
from tests.support.searches import examples

pytestmark = pytest.mark.system

Result = TypeVar("Result")
SENDERS = st.sampled_from(["ada", "bob"])
WHICH = st.integers(0, 30)
USER = "ada"


class World:
    """A client and its tables, on an event loop that runs while a call does."""

    def __init__(self, access: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        self.client = AsyncClient(**access)
        schema = TimelineSchema("im_store", lists=("tags",))
        self.timelines = Timelines(self.client, schema)
        self.cursors = Cursors(self.client)
        self.conversations = Conversations(self.timelines, self.cursors)
        self.names = (f"group:{number}" for number in count())
        self.lost = 0
        """How many of the next answers to writes are lost."""
        self.do(self.timelines.create())
        self.do(self.cursors.create())
        exchange = self.client.endpoint.exchange

        async def lose_answers(operation: str, body: bytes, more: Any = None) -> HttpAnswer:
            answer = await exchange(operation, body, more)
            # Without the answer to its start, a transaction would hold the key for a minute.
            if self.lost and operation in ("PutRow", "CommitTransaction"):
                self.lost -= 1
                raise OutcomeUnknown("The answer was lost.")
            return answer

        self.client.endpoint.exchange = lose_answers  # type: ignore[method-assign]

    def do(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(call)

    def close(self) -> None:
        self.do(self.client.close())
        self._runner.close()


class TimelineMachine(RuleBasedStateMachine):
    """One timeline, and the list of its messages, the oldest first."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.name = next(self.world.names)
        self.chat = self.world.timelines.of(self.name)
        self.other = self.world.timelines.of(f"{self.name}:other")
        self.model: list[TimelineEntry] = []
        self.sent: dict[str, TimelineEntry] = {}
        self.passed = 0
        self.read_id = 0

    # Writes.

    @rule(sender=SENDERS, n=st.integers(0, 3), tags=st.lists(st.text(max_size=3), max_size=2))
    def store(self, sender: str, n: int, tags: list[str]) -> None:
        entry = self.world.do(self.chat.store({"sender": sender, "n": n, "tags": tags}))
        self._add(entry)

    @rule(sender=SENDERS, size=st.integers(1, 5))
    def store_many(self, sender: str, size: int) -> None:
        messages: list[Fields] = [{"sender": sender, "n": number} for number in range(size)]
        for entry in self.world.do(self.chat.store_many(messages)):
            self._add(entry)

    @rule(sender=SENDERS, message=st.integers(0, 3))
    def send(self, sender: str, message: int) -> None:
        message_id = f"m{message}"
        fields: Fields = {"sender": sender, "n": message}
        entry = self.world.do(self.chat.send(fields, message_id=message_id))
        self._note_sent(message_id, entry)

    @rule(sender=SENDERS, message=st.integers(0, 3))
    def send_and_lose_the_answer(self, sender: str, message: int) -> None:
        message_id = f"m{message}"
        fields: Fields = {"sender": sender, "n": message}
        self.world.lost = 1
        entry: TimelineEntry | None = None
        while entry is None:
            with suppress(OutcomeUnknown):
                entry = self.world.do(self.chat.send(fields, message_id=message_id))
        self.world.lost = 0
        self._note_sent(message_id, entry)

    def _note_sent(self, message_id: str, entry: TimelineEntry) -> None:
        if message_id in self.sent:
            first = self.sent[message_id]
            assert entry.id == first.id
        else:
            self.sent[message_id] = entry
            self._add(entry)

    def _add(self, entry: TimelineEntry) -> None:
        assert entry.id > max([self.passed, *(one.id for one in self.model)])
        self.model.append(entry)

    @rule(n=st.integers(0, 3))
    def store_elsewhere(self, n: int) -> None:
        self.world.do(self.other.store({"sender": "eve", "n": n}))

    @rule(which=WHICH, n=st.integers(4, 6))
    def update(self, which: int, n: int) -> None:
        entry = self._choose(which)
        if entry is None:
            with pytest.raises(ConditionFailed):
                self.world.do(self.chat.update(7, {"n": n}))
            return
        self.world.do(self.chat.update(entry.id, {"n": n}, delete=["tags"]))
        fields = {name: value for name, value in entry.fields.items() if name != "tags"}
        changed = TimelineEntry(entry.id, fields | {"n": n})
        self.model[self.model.index(entry)] = changed

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        entry = self._choose(which)
        if entry is not None:
            self.world.do(self.chat.delete(entry.id))
            self.model.remove(entry)
            self.sent = {name: one for name, one in self.sent.items() if one.id != entry.id}

    def _choose(self, which: int) -> TimelineEntry | None:
        return self.model[which] if which < len(self.model) else None

    # Reads.

    @rule(low=WHICH, high=WHICH, limit=st.none() | st.integers(1, 4), least=st.integers(0, 6))
    def scan(self, low: int, high: int, limit: int | None, least: int) -> None:
        first, last = sorted((self._bound(low), self._bound(high)))
        if first == last:
            return
        test = column("n") >= least
        kept = [entry for entry in self.model if int(str(entry.fields["n"])) >= least]
        forward = self.chat.forward(first, last, limit=limit, filter=test)
        expected = [entry for entry in kept if first <= entry.id < last]
        assert self.world.do(collect(forward)) == expected[:limit]
        backward = self.chat.backward(last, first, limit=limit, filter=test)
        expected = [entry for entry in reversed(kept) if first < entry.id <= last]
        assert self.world.do(collect(backward)) == expected[:limit]

    def _bound(self, which: int) -> int:
        entry = self._choose(which // 2)
        return which if entry is None else entry.id + which % 2

    @rule()
    def read_on(self) -> None:
        found = self.world.do(collect(self.chat.after(self.passed)))
        assert found == [entry for entry in self.model if entry.id > self.passed]
        self.passed = max([self.passed, *(entry.id for entry in found)])

    @rule(which=WHICH)
    def move_the_cursor(self, which: int) -> None:
        entry = self._choose(which)
        if entry is not None:
            self.read_id = max(self.read_id, entry.id)
            assert self.world.do(self.world.cursors.read(USER, self.name, entry.id)) == self.read_id

    @rule(limit=st.integers(1, 4))
    def count_unread(self, limit: int) -> None:
        unread = [
            entry
            for entry in self.model
            if entry.id > self.read_id and entry.fields["sender"] != USER
        ]
        found = self.world.do(self.world.conversations.unread(USER, self.name, limit=limit))
        assert found == Unread(min(len(unread), limit), has_more=len(unread) > limit)

    @invariant()
    def latest(self) -> None:
        latest = self.model[-1] if self.model else None
        assert self.world.do(self.chat.latest()) == latest
        assert self.world.do(self.chat.latest_id()) == (latest.id if latest else 0)


@pytest.fixture
def world(access: dict[str, Any]) -> Iterator[World]:
    opened = World(access)
    yield opened
    opened.close()


def check(world: World, histories: int) -> None:
    machine = type("Machine", (TimelineMachine,), {"world": world})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=histories, stateful_step_count=30)
    )


def test_a_timeline_is_a_list(world: World) -> None:
    check(world, examples(10, 20))


@pytest.mark.slow
def test_many_timelines_are_lists(world: World) -> None:
    check(world, 500)
