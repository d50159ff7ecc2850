"""Timelines of a cluster whose processes die: each message is sent once, and no device misses one.

``make test-timelines`` runs the large one, of ``ROWTIDE_TIMELINE_MESSAGES`` messages.
``ROWTIDE_SEED`` repeats a run, as far as its moments repeat.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from rowtide.client import AsyncClient
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.support.parts import loop_s
from tests.workers.conftest import HOST, Workers
from tests.workers.timelines.chat import INBOX, MEMBERS, STORE, Chat, LostAnswers
from tests.workers.timelines.faults import Faults
from tests.workers.timelines.plan import Sizes, make_groups
from tests.workers.timelines.world import ChatWorld

pytestmark = pytest.mark.system

FEW = Sizes(
    users=40,
    conversations=8,
    members_max=30,
    copies_max=15,
    messages=400,
    senders=5,
    kills=2,
    changes=12,
)
THOUSAND = Sizes(
    users=1000,
    conversations=200,
    members_max=500,
    copies_max=100,
    messages=50_000,
    senders=20,
    kills=10,
    changes=24,
)

LOST = 0.03
"""Share of answers that are lost."""

SENDER_PATIENCE_S = 1.0
"""A sender goes on with another conversation if one does not answer for longer."""

FAN_OUT = "inboxes"

LEASE_MS = 10_000
"""A worker that gets no processor for so long loses its slots as if it had died. Then the other one
reads all of their rows, which takes more of the processor.
"""


@pytest.fixture
def processes(workers: Workers, tmp_path: Path) -> Iterator[ConnectorProcesses]:
    """No fan-out yet, but two workers that keep their addresses when they are started again."""
    ports = islice(free_ports(HOST), 2)
    for port in ports:
        workers.start("--port", str(port), "--lease-ms", str(LEASE_MS))
    workers.wait_until_divided()
    with ExitStack() as closing:
        yield ConnectorProcesses(Ready(**workers.ready(0)), tmp_path, closing)


@asynccontextmanager
async def open_chats(workers: Workers, patience_s: float) -> AsyncIterator[list[Chat]]:
    """Give the tables as two processes see them, each by another worker."""
    async with AsyncExitStack() as closing:
        yield [
            Chat(
                await closing.enter_async_context(
                    AsyncClient(**workers.ready(number), patience_s=patience_s)
                )
            )
            for number in range(2)
        ]


async def play(
    sizes: Sizes, workers: Workers, processes: ConnectorProcesses, chance: random.Random
) -> str:
    """Run a chat and check it; return what it proved."""
    began_s = time.monotonic()
    groups = make_groups(sizes, chance)
    async with (
        open_chats(workers, 10.0) as chats,
        open_chats(workers, SENDER_PATIENCE_S) as senders,
    ):
        await chats[0].create(groups)
        sink = {
            "kind": "timeline",
            "members": MEMBERS,
            "inbox": INBOX,
            "copies_max": sizes.copies_max,
        }
        document = yaml_of(FAN_OUT, {"table": STORE, "sink": sink, "lease_ms": 2000})
        await asyncio.to_thread(declare, Ready(**workers.ready(0)), document)
        processes.start(FAN_OUT)
        lost = LostAnswers([chat.client for chat in senders], chance, share=LOST)
        world = ChatWorld(sizes, groups, chats, senders, chance)
        faults = Faults(workers, processes, chance)
        ready_s = time.monotonic()
        await world.run(faults)
        drained_s = time.monotonic()
        await world.check()
    processes.stop_all()
    seconds = [ready_s - began_s, drained_s - ready_s, time.monotonic() - drained_s]
    return format_proof(world, faults, lost, seconds)


def format_proof(
    world: ChatWorld, faults: Faults, lost: LostAnswers, seconds: Sequence[float]
) -> str:
    """Return what a run proved, and how long its parts took."""
    sizes, sent = world.sizes, world.sent
    done = ", ".join(f"{count} x {kind}" for kind, count in sorted(faults.done.items()) if kind)
    server = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = [time.process_time(), server.ru_utime + server.ru_stime]
    return f"""
{sizes.users} users, {sizes.conversations} conversations, {sizes.messages} messages; {done}
  each send stored once: {len(sent.ids)} messages, {lost.count} answers lost, \
{sent.repeats} sent again, {len(sent.recalled)} recalled
  each inbox has each message once and in order: {len(world.visiting)} inboxes, \
{world.inbox_rows} rows
  no id was passed: {len(world.visiting)} devices that return, {len(world.following)} that follow
  unread equals the count from the store table: {world.unread_compared} conversations of users
  {seconds[0]:.0f} s to set up, {seconds[1]:.0f} s to send and fan out, {seconds[2]:.0f} s to check
  {cpu_s[0]:.0f} CPU s of the clients, {cpu_s[1]:.0f} of ended processes; \
fixed loop {loop_s(time.process_time):.4f} CPU s"""


def run(sizes: Sizes, workers: Workers, processes: ConnectorProcesses, seed: int) -> None:
    proof = asyncio.run(play(sizes, workers, processes, random.Random(seed)))
    print(proof)  # noqa: T201 - What make test-timelines shows.


def test_no_message_is_lost_doubled_or_passed(
    workers: Workers, processes: ConnectorProcesses, seed: int
) -> None:
    run(FEW, workers, processes, seed)


@pytest.mark.slow
def test_no_message_of_a_thousand_users_is_lost_doubled_or_passed(
    workers: Workers, processes: ConnectorProcesses, seed: int
) -> None:
    messages = int(os.environ.get("ROWTIDE_TIMELINE_MESSAGES", THOUSAND.messages))
    run(replace(THOUSAND, messages=messages), workers, processes, seed)
