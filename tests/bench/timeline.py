"""Speed of timelines and of the fan-out to inboxes: ``python -m tests.bench.timeline``.

A broker, a worker and the connectors beside it are children of this process. This process is the
client, so it shares the machine with them. ``--messages`` is the length of the long timeline;
``--seconds`` is how long each rate is measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import click
import uvloop

from rowtide.client import (
    AsyncClient,
    Conversations,
    Cursors,
    Inboxes,
    Members,
    Timelines,
    TimelineSchema,
    inbox_schema,
)
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.up import Ready, Up
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.report import Result, as_markdown, percentile
from tests.support.waiting import until_async

__all__ = ["main"]

TEXT = "x" * 100
GROUP = 50
GROUPS = 20
BATCH = 100
WRITERS = 32
PACED_PER_S = 20
"""Messages per second while delays are measured: 1,000 inbox rows per second."""

LOOK_S = 0.01
WAIT_S_MAX = 300.0


@click.command(context_settings={"show_default": True})
@click.option("--messages", default=1_000_000, help="Messages of the long timeline.")
@click.option("--backlog", default=4000, help="Messages to fan out in one go, to 50 members each.")
@click.option("--seconds", default=10.0, help="Length of each measurement.")
def main(messages: int, backlog: int, seconds: float) -> None:
    """Measure timelines and print a Markdown table."""
    click.echo(format_circumstances(circumstances("timeline")))
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where:
        folder = Path(where)
        cache_dir = default_cache_dir(os.environ, sys.platform)
        options = ["--port", "0", "--cache-dir", str(cache_dir), "--table-operations-per-s", "0"]
        with (
            (folder / "log").open("wb") as log,
            Up(folder / "data", options=options, output=log) as up,
        ):
            sizes = Sizes(messages, backlog, seconds)
            results = uvloop.run(measure(up.start(), sizes))
    click.echo(as_markdown(results))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    messages: int
    backlog: int
    seconds: float


@dataclass(slots=True)
class Chat:
    """The tables of a chat and the server that they are on."""

    ready: Ready
    client: AsyncClient
    sizes: Sizes
    store: Timelines = field(init=False)
    sync: Timelines = field(init=False)
    cursors: Cursors = field(init=False)
    members: Members = field(init=False)
    inboxes: Inboxes = field(init=False)

    def __post_init__(self) -> None:
        self.store = Timelines(self.client, TimelineSchema("im_store"))
        self.sync = Timelines(self.client, inbox_schema("im_sync"))
        self.cursors = Cursors(self.client)
        self.members = Members(self.client, self.cursors)
        self.inboxes = Inboxes(self.store, self.sync, self.members, self.cursors)

    async def create(self) -> None:
        """Create the tables, and groups of members of which "ada" is in each."""
        await self.store.create()
        await self.cursors.create()
        await self.members.create()
        for group in range(GROUPS):
            users = ["ada", *(f"u{group}-{number}" for number in range(1, GROUP))]
            async with asyncio.TaskGroup() as tasks:
                for user in users:
                    joining = self.members.join(f"group:{group}", user)
                    tasks.create_task(joining, name=f"join {user}")

    async def declare(self) -> None:
        """Declare the fan-out; the connectors beside the worker run it."""
        sink = {"kind": "timeline", "members": self.members.table, "inbox": "im_sync"}
        document = {"table": "im_store", "sink": sink}
        await Declarations(self.client.endpoint).declare(parse_document("inboxes", document))


async def measure(ready: Ready, sizes: Sizes) -> list[Result]:
    """Return all figures of a server that has just started."""
    async with AsyncClient(**ready._asdict()) as client:
        chat = Chat(ready, client, sizes)
        await chat.create()
        results = [
            *await measure_store(chat),
            await measure_store_many(chat),
            await measure_send(chat),
            *await measure_follow(chat),
            *await measure_conversations(chat),
        ]
        results += await measure_fan_out(chat)
        if sizes.messages:
            results.append(await measure_newest(chat))
    return results


def _message(number: int) -> dict[str, int | str]:
    return {"sender": "bob", "text": TEXT, "n": number}


async def repeat_for(
    seconds: float, writers: int, call: Callable[[int], Awaitable[object]]
) -> tuple[float, list[float]]:
    """Call as often as possible; return the calls per second and the seconds of each."""
    numbers, taken_s = count(), list[float]()
    began_s = time.perf_counter()

    async def write() -> None:
        while (now_s := time.perf_counter()) - began_s < seconds:
            await call(next(numbers))
            taken_s.append(time.perf_counter() - now_s)

    async with asyncio.TaskGroup() as tasks:
        for number in range(writers):
            tasks.create_task(write(), name=f"writer {number}")
    return len(taken_s) / (time.perf_counter() - began_s), taken_s


async def pace(
    seconds: float, rate: float, call: Callable[[int], Awaitable[object]]
) -> list[float]:
    """Begin calls at a rate, whether earlier ones are answered or not; return their seconds."""
    taken_s: list[float] = []

    async def time_call(number: int) -> None:
        began_s = time.perf_counter()
        await call(number)
        taken_s.append(time.perf_counter() - began_s)

    async with asyncio.TaskGroup() as tasks:
        async for number in paced(seconds, rate):
            tasks.create_task(time_call(number), name=f"call {number}")
    return taken_s


async def paced(seconds: float, rate: float) -> AsyncIterator[int]:
    """Yield numbers at a rate."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(0.0, began_s + number / rate - loop.time()))
        yield number


async def measure_store(chat: Chat) -> list[Result]:
    """Return the highest rate of single stores, and their times at half of it."""
    timelines = [chat.store.of(f"store:{number}") for number in range(200)]

    async def store(number: int) -> None:
        await timelines[number % len(timelines)].store(_message(number))

    rate, _ = await repeat_for(chat.sizes.seconds, WRITERS, store)
    calls_s = await pace(chat.sizes.seconds, rate / 2, store)
    return [
        Result("timeline store, highest rate", rate, "/s"),
        *_times("timeline store at half of the highest rate", calls_s),
    ]


def _times(name: str, calls_s: Sequence[float]) -> Iterator[Result]:
    for percent in (50, 99):
        yield Result(f"{name}, p{percent}", percentile(calls_s, percent) * 1000, "ms")


async def measure_store_many(chat: Chat) -> Result:
    timelines = [chat.store.of(f"many:{number}") for number in range(50)]

    async def store(number: int) -> None:
        messages = [_message(number)] * BATCH
        await timelines[number % len(timelines)].store_many(messages)

    rate, _ = await repeat_for(chat.sizes.seconds, 8, store)
    return Result("timeline store_many(100), messages", rate * BATCH, "/s")


async def measure_send(chat: Chat) -> Result:
    timelines = [chat.store.of(f"send:{number}") for number in range(200)]

    async def send(number: int) -> None:
        timeline = timelines[number % len(timelines)]
        await timeline.send(_message(number), message_id=f"m{number}")

    rate, calls_s = await repeat_for(chat.sizes.seconds, WRITERS, send)
    return Result("timeline send, messages", rate, "/s", calls_s=calls_s)


async def measure_follow(chat: Chat) -> list[Result]:
    """Return how long after its answer a message is on another device."""
    timeline = chat.store.of("follow")
    first = await timeline.store(_message(0))
    answered: dict[int, float] = {}

    async def store(number: int) -> None:
        entry = await timeline.store(_message(number))
        answered[entry.id] = time.perf_counter()

    async with following_ids(chat, timeline.follow(after=first.id)) as seen:
        await pace(chat.sizes.seconds, 50, store)
        await until_async(lambda: len(seen) >= len(answered), "messages are missing")
    return [*_times("timeline follow, answered -> on the other device", _delays(answered, seen))]


@asynccontextmanager
async def following_ids(
    chat: Chat, entries: AsyncIterator[object], *, of: Callable[[object], int] | None = None
) -> AsyncIterator[dict[int, float]]:
    """Give the ids that a device has seen, each with the time; the device is a task."""
    seen: dict[int, float] = {}
    id_of = of or (lambda entry: int(entry.id))  # type: ignore[attr-defined]

    async def follow() -> None:
        async with aclosing(entries):  # type: ignore[type-var]
            async for entry in entries:
                seen.setdefault(id_of(entry), time.perf_counter())

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow(), name="device")
        await asyncio.sleep(0.5)  # It begins to wait.
        yield seen
        task.cancel()


def _delays(answered: dict[int, float], seen: dict[int, float]) -> list[float]:
    return [max(0.0, seen[id] - answered_s) for id, answered_s in answered.items()]


async def measure_conversations(chat: Chat) -> list[Result]:
    """Return the time to list a user's 50 conversations with the unread messages of each."""
    for number in range(50):
        name = f"talk:{number}"
        await chat.cursors.join("reader", name)
        await chat.store.of(name).store_many([_message(n) for n in range(20)])
    conversations = Conversations(chat.store, chat.cursors)

    async def read(_: int) -> None:
        assert len(await conversations.of("reader")) == 50

    _, calls_s = await repeat_for(chat.sizes.seconds / 2, 1, read)
    return [*_times("conversations of a user with 50", calls_s)]


async def measure_fan_out(chat: Chat) -> list[Result]:
    """Return the rate of a backlog, and the delay of single messages, in groups of 50."""
    last: dict[str, int] = {}
    for number in range(0, chat.sizes.backlog, BATCH):
        name = f"group:{number // BATCH % GROUPS}"
        entries = await chat.store.of(name).store_many([_message(number)] * BATCH)
        last[name] = entries[-1].id
    await chat.declare()
    timeline = chat.sync.of("ada")

    async def count_rows() -> int:
        if "im_sync" not in await chat.client.list_tables():
            return 0
        return len([row async for row in timeline.forward(limit=None, fields=["message_id"])])

    async def is_done() -> bool:
        newest = await timeline.latest()
        return newest is not None and newest.fields["message_id"] == max(last.values())

    # The start of the process is not counted, nor what it writes before the first look.
    first = await _until(count_rows)
    began_s = time.perf_counter()
    await _until(is_done)
    rate = (chat.sizes.backlog - first) * GROUP / (time.perf_counter() - began_s)
    answered: dict[int, float] = {}

    async def store(number: int) -> None:
        entry = await chat.store.of(f"group:{number % GROUPS}").store(_message(number))
        answered[entry.id] = time.perf_counter()

    after = await timeline.latest_id()
    rows = timeline.follow(after=after)
    async with following_ids(chat, rows, of=_message_id) as seen:
        await pace(chat.sizes.seconds, PACED_PER_S, store)
        await until_async(lambda: len(seen) >= len(answered), "messages are missing")
    delays = _delays(answered, seen)
    return [
        Result("fan-out, groups of 50, inbox rows", rate, "/s"),
        *_times("fan-out, message answered -> in the inbox", delays),
    ]


def _message_id(entry: object) -> int:
    return int(entry.fields["message_id"])  # type: ignore[attr-defined]


async def _until(look: Callable[[], Awaitable[int]]) -> int:
    """Return what ``look`` returns once it is not 0."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(LOOK_S)


async def measure_newest(chat: Chat) -> Result:
    """Return the time to read the newest 30 messages of a very long timeline."""
    timeline = chat.store.of("long")
    rest = chat.sizes.messages
    async with asyncio.TaskGroup() as tasks:
        for writer in range(4):
            tasks.create_task(_fill(chat, rest // 4), name=f"fill {writer}")

    async def read(_: int) -> None:
        assert len([entry async for entry in timeline.backward(limit=30)]) == 30

    _, calls_s = await repeat_for(chat.sizes.seconds / 2, 1, read)
    value = percentile(calls_s, 50) * 1000
    return Result(f"newest 30 of a timeline of {rest:,}, p50", value, "ms")


async def _fill(chat: Chat, messages: int) -> None:
    timeline = chat.store.of("long")
    for number in range(0, messages, 200):
        await timeline.store_many([_message(number)] * min(200, messages - number))


if __name__ == "__main__":
    main()
