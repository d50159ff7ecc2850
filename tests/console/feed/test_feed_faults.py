"""A feed while its surroundings fail: it says what is true, and goes on without a gap."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client import Client, OutcomeUnknown, Unavailable
from rowtide.deploy.kafka.orphan import find_broker
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Ready
from tests.console.feed import wrong_clock
from tests.console.feed.feed_client import FeedClient, Refusal
from tests.support.consoles import serving_console
from tests.support.servers import serving
from tests.support.waiting import until
from tests.system.small_disk import PIECE, Ballast, NoDisk, small_disk

pytestmark = pytest.mark.system

DISK_BYTES = 500 << 20
FREE_BYTES_MIN = 200 << 20
BEHIND_S_MAX = 60.0
"""How late a feed may notice on a busy machine that its worker is silent."""

Events = AsyncIterator[dict[str, Any]]


class FaultedTable:
    """A table with a stream and a share token, and what was written to it."""

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.client = Client(**ready._asdict(), timeout_s=10.0, patience_s=0.0)
        self.client.create_table("t", {"k": str}, stream_hours=24)
        with ProtocolClient(**ready._asdict(), timeout_s=30.0) as admin:
            token = admin.call_json("RowtideCreateToken", {"table": "t"})["token"]
        self.headers = {"Authorization": f"Bearer {token}"}

    def follow(self, **parameters: str) -> FeedClient:
        """Return a follower that is not connected yet."""
        return FeedClient(f"/stream/{self.ready.instance}/t", headers=self.headers, **parameters)

    def put(self, key: str) -> None:
        """Write a row, again and again until it is taken."""
        until(lambda: self.try_put(key) is None, f"row {key} is written")

    def try_put(self, key: str) -> Exception | None:
        """Try once to write a row; return the failure."""
        try:
            self.client.put("t", {"k": key})
        except (Unavailable, OutcomeUnknown) as error:
            return error
        return None

    def keys(self) -> list[str]:
        """Return the keys of the table's rows."""
        return [str(row["k"]) for row in self.client.range("t")]


@contextmanager
def faulted(ready: Ready) -> Iterator[FaultedTable]:
    """Make a table, and close its client at the end."""
    table = FaultedTable(ready)
    with table.client:
        yield table


async def wait_for(events: Events, name: str) -> dict[str, Any]:
    """Return the next event of a kind. It must come in time."""
    async with asyncio.timeout(BEHIND_S_MAX):
        async for event in events:
            assert event["event"] not in ("expired", "slow", "end"), event
            if event["event"] == name:
                return event
    raise AssertionError(f"the feed ended without {name}")


def keys_of(follower: FeedClient) -> list[str]:
    return [record["key"]["k"] for record in follower.records]


@pytest.mark.kafka
async def test_kafka_is_gone_and_comes_back(tmp_path: Path) -> None:
    with serving_console(tmp_path, log="kafka") as console, faulted(console.ready) as table:
        broker = find_broker((tmp_path / "data").resolve() / "kafka" / "server.properties")
        assert broker is not None
        follower = table.follow()
        async with follower.connect(console.url) as events:
            assert (await anext(events))["event"] == "ready"
            await asyncio.to_thread(table.put, "before")
            await wait_for(events, "records")
            os.kill(broker, signal.SIGSTOP)  # A broker that is killed is started again at once.
            try:
                behind = await wait_for(events, "behind")
                assert behind["data"]["behind_s"] >= 0
                assert behind["data"]["reason"]
                assert "Traceback" not in behind["data"]["reason"]
                failure = await asyncio.to_thread(table.try_put, "meanwhile")
                assert failure is not None
                later = await wait_for(events, "behind")
                assert later["data"]["behind_s"] > behind["data"]["behind_s"]
                with pytest.raises(Refusal) as refused:
                    await table.follow().take(console.url, "ready")
                assert refused.value.status == 503
                words = json.loads(refused.value.text)["error"]["message"]
                assert re.search("cannot be followed now|no answer from .*timed out", words), words
                assert "failure.unknown" not in refused.value.text  # A feed changes nothing.
                assert "Traceback" not in refused.value.text
            finally:
                os.kill(broker, signal.SIGCONT)
            await asyncio.to_thread(table.put, "after")
            while "after" not in keys_of(follower):
                await wait_for(events, "records")
        # The write without an answer may have been made: the feed and the table agree on it.
        assert sorted({*keys_of(follower)}) == await asyncio.to_thread(table.keys)
        assert keys_of(follower).count("before") == 1
        assert "Traceback" not in console.output


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def console_with_wrong_clock(folder: Path, ready: Ready, hours: float) -> Iterator[str]:
    """Run a console whose clock is wrong, and yield its address."""
    port = next(free_ports("127.0.0.1"))
    words = [sys.executable, "-P", wrong_clock.__file__, str(hours), "console", "run"]
    words += ["--port", str(port), "--endpoint", ready.endpoint, "--instance", ready.instance]
    words += ["--access-key-id", ready.access_key_id]
    words += ["--access-key-secret", ready.access_key_secret]
    with (folder / "console-output").open("wb") as output:
        child = subprocess.Popen(words, cwd=folder, stdout=output, stderr=output)
        try:
            until(
                lambda: is_listening(port),
                lambda: (folder / "console-output").read_text(errors="replace"),
            )
            yield f"http://127.0.0.1:{port}"
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("hours", [-1.0, 1.0])
async def test_the_consoles_clock_is_an_hour_wrong(tmp_path: Path, hours: float) -> None:
    with serving(tmp_path) as ready, faulted(ready) as table:
        table.put("old")
        since_us = time.time_ns() // 1000
        with console_with_wrong_clock(tmp_path, ready, hours) as url:
            follower = table.follow()
            async with follower.connect(url) as events:
                assert (await anext(events))["event"] == "ready"
                await asyncio.to_thread(table.put, "new")
                await wait_for(events, "records")
                await wait_for(events, "position")  # The right is confirmed meanwhile.
            assert keys_of(follower) == ["new"]
            await asyncio.to_thread(table.put, "newer")
            await follower.take(url, "records")  # It goes on at its token.
            assert keys_of(follower) == ["new", "newer"]
            by_time = table.follow(begin=str(since_us))
            while len(by_time.records) < 2:
                await by_time.take(url, "records")
            assert keys_of(by_time) == ["new", "newer"]
        output = (tmp_path / "console-output").read_text(errors="replace")
        assert "Traceback" not in output


def leave_at_once(port: int, table: FaultedTable) -> None:
    """Ask for the feed, and be gone before it is answered."""
    head = f"GET /stream/{table.ready.instance}/t HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in table.headers.items())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}\r\n".encode())
        # Closing sends a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def test_viewers_who_leave_at_once_leave_no_stack_trace(tmp_path: Path) -> None:
    with serving_console(tmp_path) as console, faulted(console.ready) as table:
        for _ in range(50):
            await asyncio.to_thread(leave_at_once, console.port, table)
        follower = table.follow()
        async with follower.connect(console.url) as events:
            assert (await anext(events))["event"] == "ready"
            await asyncio.to_thread(table.put, "after")
            await wait_for(events, "records")
        assert "Traceback" not in console.output
        assert "Error handling request" not in console.output


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    with ExitStack() as closing:
        try:
            yield closing.enter_context(small_disk(tmp_path / "disk", DISK_BYTES))
        except NoDisk as error:
            pytest.skip(str(error))


def write_until_refused(table: FaultedTable) -> Exception:
    """Write one row after another until the worker refuses one; return why."""
    for number in count():
        failure = table.try_put(f"n{number:06}")
        if failure is not None:
            return failure
    raise AssertionError("numbers do not end")


async def test_the_workers_disk_is_full(disk: Path) -> None:
    options = ("--free-bytes-min", str(FREE_BYTES_MIN))
    with serving_console(disk, *options) as console, faulted(console.ready) as table:
        ballast = Ballast(disk)
        follower = table.follow()
        async with follower.connect(console.url) as events:
            assert (await anext(events))["event"] == "ready"
            await asyncio.to_thread(table.put, "before")
            await wait_for(events, "records")
            ballast.leave(FREE_BYTES_MIN - PIECE)
            refused = await asyncio.to_thread(write_until_refused, table)
            assert "disk is almost full" in str(refused)
            written = await asyncio.to_thread(table.keys)
            # Nothing is behind: reads go on, and the position advances as always.
            for _ in range(2):
                await wait_for(events, "position")
            assert {event["event"] for event in follower.events} <= {
                "ready",
                "records",
                "position",
            }
            stranger = table.follow(begin="oldest")
            while len(stranger.records) < len(written):
                await stranger.take(console.url, "records")
            assert sorted(keys_of(stranger)) == written
            ballast.drop()
            await asyncio.to_thread(table.put, "after")
            while "after" not in keys_of(follower):
                await wait_for(events, "records")
        assert sorted(keys_of(follower)) == await asyncio.to_thread(table.keys)
        assert "Traceback" not in console.output
