"""Readers of one consumer share a stream and go on where the last one was, in both forms."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rowtide.client import AsyncClient, Client, Rejected, column
from rowtide.testing.instance import InstanceAccess
from tests.changes.readers import Delivered
from tests.client.feed_process import SETTINGS
from tests.client.forms import FORMS, Form, Leave
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
END_S_MAX = 60.0


@pytest.fixture
def table(form: Form) -> str:
    """A table with a stream, and ten changes in it."""
    form.do("create_table", "t", {"k": int}, stream_hours=24)
    for number in range(10):
        form.do("put", "t", {"k": number, "n": number})
    return "t"


def numbers(form: Form, count: int, leave: Leave, **options: Any) -> list[int]:
    """Return the numbers of the next changes of table ``t``."""
    return [int(change.row["n"]) for change in form.take(count, leave, "t", **options)]


def owners(form: Form) -> set[str]:
    """Return who holds leases of shards."""
    return {row["owner"] for row in form.rows("rowtide_readers")}


@pytest.mark.parametrize(("leave", "following"), [("break", 3), ("raise", 3), ("stop", 4)])
def test_a_reader_goes_on_behind_the_last_finished_change(
    form: Form, table: str, leave: Leave, following: int
) -> None:
    assert numbers(form, 4, leave, consumer="mailer") == [0, 1, 2, 3]
    assert owners(form) == {""}, "the shard was handed over"
    rest = numbers(form, 10 - following, "stop", consumer="mailer")
    assert rest == list(range(following, 10))
    form.do("put", table, {"k": 10, "n": 10})
    assert numbers(form, 1, "stop", consumer="mailer") == [10]
    assert numbers(form, 2, "stop", consumer="other") == [0, 1]


def test_a_change_says_what_became_of_its_row(form: Form) -> None:
    form.do("create_table", "t", {"a": str, "b": bytes}, stream_hours=24)
    key = {"a": "x", "b": b"\0"}
    form.do("put", "t", {**key, "n": 2**62, "d": 1.0, "t": True, "s": "ü"})
    form.do("update", "t", {**key, "n": 1}, delete=["d"])
    form.do("delete", "t", key)
    put, update, delete = form.take(3, "stop", "t")
    assert (put.kind, put.row) == ("put", {**key, "d": 1.0, "n": 2**62, "s": "ü", "t": True})
    assert (update.kind, update.row, update.removed) == ("update", {**key, "n": 1}, ["d"])
    assert (delete.kind, dict(delete.key)) == ("delete", key)
    assert put.stamp < update.stamp < delete.stamp


def test_a_reader_may_choose_what_it_gets(form: Form, table: str) -> None:
    form.do("put", table, {"k": 10, "n": 10, "m": 1})
    found = form.take(2, "stop", table, filter=column("n") >= 9, columns=["m"])
    assert [change.row for change in found] == [{"k": 9}, {"k": 10, "m": 1}]


def test_a_reader_may_begin_with_the_rows(form: Form, table: str) -> None:
    form.do("put", table, {"k": 0, "n": 100})
    found = form.take(10, "stop", table, begin="rows")
    assert {change.kind for change in found} == {"row"}
    assert sorted(int(change.row["n"]) for change in found) == [*range(1, 10), 100]


@pytest.mark.parametrize(("leave", "following"), [("break", 2), ("stop", 3)])
def test_rows_go_on_behind_the_last_finished_one(
    form: Form, table: str, leave: Leave, following: int
) -> None:
    begin = {"consumer": "copy", "begin": "rows"}
    first = form.take(3, leave, table, **begin)
    form.do("put", table, {"k": 0, "n": 100})
    form.do("put", table, {"k": 9, "n": 109})
    second = form.take(11 - following, "stop", table, **begin)
    assert [change.row["k"] for change in first] == [0, 1, 2]
    # The change of a row that was passed on comes before the rest of the rows.
    rest = [("row", number) for number in range(following, 10)]
    assert [(change.kind, change.row["k"]) for change in second] == [("put", 0), *rest]
    assert second[-1].row["n"] == 109


def test_a_consumer_is_rewound(form: Form, table: str) -> None:
    assert numbers(form, 10, "stop", consumer="mailer") == list(range(10))
    form.do("rewind", table, consumer="mailer", to="oldest")
    assert numbers(form, 2, "stop", consumer="mailer") == [0, 1]


def test_what_fails_a_reader_is_raised_in_the_loop(form: Form) -> None:
    form.do("create_table", "t", {"k": int})
    with pytest.raises(Rejected, match="has no stream"):
        form.take(1, "stop", "t", consumer="mailer")


def test_a_feed_is_read_once(access: dict[str, Any]) -> None:
    with Client(**access) as client:
        client.create_table("t", {"k": int}, stream_hours=1)
        client.put("t", {"k": 1})
        feed = client.changes("t")
        assert next(iter(feed)).row == {"k": 1}
        with pytest.raises(RuntimeError, match="is read once"):
            next(iter(feed))


async def test_a_loop_left_hands_over_and_batches_come_whole(access: dict[str, Any]) -> None:
    async with AsyncClient(**access) as client:
        await client.create_table("t", {"k": int}, stream_hours=1)
        for number in range(3):
            await client.put("t", {"k": number})
        async for batch in client.changes("t", consumer="mailer").batches():
            assert [change.row["k"] for change in batch] == [0, 1, 2]
            break
        # Left without a word: the client hands over what was read, then closes.
        async for change in client.changes("t", consumer="other"):
            assert change.row == {"k": 0}
            break
    async with AsyncClient(**access) as client:
        assert {row["owner"] async for row in client.range("rowtide_readers")} == {""}


async def test_a_client_that_is_not_entered_reads_no_changes(access: dict[str, Any]) -> None:
    client = AsyncClient(**access)
    with pytest.raises(RuntimeError, match="within `async with client:`"):
        client.changes("t")
    await client.close()


async def test_a_cancelled_reader_ends(access: dict[str, Any]) -> None:
    reading = asyncio.Event()

    async def read() -> None:
        async with AsyncClient(**access) as client:
            await client.create_table("t", {"k": int}, stream_hours=1, if_missing=True)
            await client.put("t", {"k": 1})
            async for _ in client.changes("t", consumer="mailer"):
                reading.set()

    async with asyncio.timeout(END_S_MAX), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(read())
        await reading.wait()
        task.cancel()
    assert task.cancelled()


class Processes:
    """Readers of one consumer; all write to one file. What runs at the end is killed."""

    def __init__(self, folder: Path, access: dict[str, Any], closing: ExitStack) -> None:
        self._file = folder / "delivered"
        self._closing = closing
        self._command = [sys.executable, "-m", "tests.client.feed_process"]
        self._command += ["--access", json.dumps(access), "--table", "shared"]
        self._command += ["--consumer", "mailer", "--file", str(self._file)]

    def start(self, form: str) -> subprocess.Popen[bytes]:
        child = self._closing.enter_context(
            subprocess.Popen([*self._command, "--form", form], cwd=ROOT)
        )
        self._closing.callback(child.kill)
        return child

    def lines(self) -> list[tuple[int, str, int, int]]:
        """Return (process, name, number, stamp) of every change that was delivered."""
        text = self._file.read_text() if self._file.exists() else ""
        return [tuple(json.loads(line)) for line in text.splitlines() if line.endswith("]")]

    def readers(self, since: int = 0) -> set[int]:
        """Return the processes that were given something, from a line on."""
        return {process for process, *_ in self.lines()[since:]}

    def read_delivered(self) -> Delivered:
        found = Delivered()
        for _, name, number, stamp in self.lines():
            found.numbers[name].append(number)
            found.stamps[name].append(stamp)
        return found


@pytest.fixture
def processes(tmp_path: Path, access: dict[str, Any]) -> Iterator[Processes]:
    """No reader yet; the test starts them."""
    with ExitStack() as closing:
        yield Processes(tmp_path, access, closing)


class Writer:
    """Writes rising numbers under names of both shards of table ``shared``."""

    NAMES = ("a1", "a2", "z1", "z2")

    def __init__(self, client: Client) -> None:
        self.written: dict[str, list[int]] = {name: [] for name in self.NAMES}
        self._client = client

    def write(self, rounds: int) -> None:
        for _ in range(rounds):
            for name, numbers in self.written.items():
                self._client.put("shared", {"a": name, "n": len(numbers)})
                numbers.append(len(numbers))


@pytest.mark.parametrize("form", FORMS)
def test_what_a_killed_reader_leaves_another_goes_on_with(
    form: str, access: dict[str, Any], rowtide_instance: InstanceAccess, processes: Processes
) -> None:
    with Client(**access) as client, rowtide_instance.admin() as admin:
        client.create_table("shared", {"a": str}, stream_hours=24)
        [shard] = admin.call_json("RowtideListShards", {"table": "shared"})["shards"]
        split = {"table": "shared", "shard": shard["shard"], "at": "m"}
        admin.call_json("RowtideSplitShard", split)
        writer = Writer(client)
        first, second = processes.start(form), processes.start(form)

        def both_read() -> bool:
            before = len(processes.lines())
            writer.write(5)
            until(lambda: processes.read_delivered().once() == writer.written)
            return processes.readers(before) == {first.pid, second.pid}

        until(both_read, "one reader gets everything")
        before = len(processes.lines())
        writer.write(50)
        until(lambda: first.pid in processes.readers(before))
        first.kill()
        first.wait()
        writer.write(20)
        until(lambda: processes.read_delivered().once() == writer.written, processes.read_delivered)
        # What the killed reader had in hand: a batch of each of two shards at most.
        assert processes.read_delivered().count_repeated() <= 2 * SETTINGS.batch_changes_max
        repeated = processes.read_delivered().count_repeated()
        second.terminate()
        assert second.wait(END_S_MAX) == 0
        third = processes.start(form)
        writer.write(5)
        until(lambda: processes.read_delivered().once() == writer.written)
        # The second stopped in order, so nothing came again.
        assert processes.read_delivered().count_repeated() == repeated
        third.terminate()
        assert third.wait(END_S_MAX) == 0
