"""A local directory that moves into Kafka: by real processes, each of them killed once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rowtide.cli.client import ProtocolClient, StreamRecord, Write
from rowtide.client.wire_row import Put, Special
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from tests.system import indexed_table
from tests.system.conftest import MakeServer
from tests.system.history import check_all
from tests.system.load import TABLE, Load, Written, create_table
from tests.system.server import Server, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

ROWTIDE = str(Path(sys.executable).with_name("rowtide"))
ROOT = Path(__file__).resolve().parents[2]
END_S_MAX = 120.0
DAY_US = 86_400_000_000
VERSIONS, SLOTS = 3, 3
KEY_PAIR = ("access_key_id", "access_key_secret")
INDEXES = (
    indexed_table.index_meta("by_local", pb.IT_LOCAL_INDEX),
    indexed_table.index_meta("by_global", pb.IT_GLOBAL_INDEX),
)
PLAIN, OLD, COUNTED, NUMBERED = "plain", "old", "counted", "numbered"
PLAIN_ROWS, COUNTED_ROWS, LOAD_ROWS = 6000, 300, 300
TABLES = (TABLE, indexed_table.TABLE, "by_local", "by_global", PLAIN, OLD, COUNTED, NUMBERED)


@pytest.fixture
def prefix() -> str:
    return f"moving{uuid4().hex[:8]}"


# What a server has.


def rows(client: ProtocolClient, table: str) -> list[Any]:
    """Return every row with all its versions."""
    names = [c.name for c in client.describe_table(table).table_meta.primary_key]
    low = tuple((name, Special.INF_MIN) for name in names)
    high = tuple((name, Special.INF_MAX) for name in names)
    page = pb.GetRangeRequest(direction=pb.FORWARD, max_versions=VERSIONS)
    return [row for found in client.get_range(table, low, high, page=page) for row in found]


def read_on(
    client: ProtocolClient, iterator: str | None, limit: int | None = None
) -> list[StreamRecord]:
    """Return what follows an iterator."""
    found: list[StreamRecord] = []
    while iterator is not None:
        page = client.get_stream_record(iterator, limit=limit)
        if not page.records:
            break
        found += page.records
        iterator = page.next_iterator
    return found


def streams(client: ProtocolClient) -> dict[tuple[str, str], list[StreamRecord]]:
    """Return every record of every stream, by stream and shard."""
    return {
        (stream.stream_id, shard.shard_id): read_on(
            client, client.get_shard_iterator(stream.stream_id, shard.shard_id)
        )
        for stream in client.list_stream()
        for shard in client.describe_stream(stream.stream_id).shards
    }


def everything(client: ProtocolClient) -> dict[str, Any]:
    """Return what clients see of the instance."""
    return {
        "tables": sorted(client.list_table()),
        "described": {name: client.describe_table(name) for name in TABLES},
        "rows": {name: rows(client, name) for name in TABLES},
        "streams": streams(client),
        "shards": {
            name: client.call_json("RowtideListShards", {"table": name}) for name in (TABLE, PLAIN)
        },
        "keys": client.call_json("RowtideListKeys", {}),
    }


def half_read(
    client: ProtocolClient, found: dict[tuple[str, str], list[StreamRecord]]
) -> dict[tuple[str, str], tuple[str, list[StreamRecord]]]:
    """Read half of each stream's shard; return the iterators behind it, and what follows."""
    positions: dict[tuple[str, str], tuple[str, list[StreamRecord]]] = {}
    for place, records in found.items():
        iterator = client.get_shard_iterator(*place)
        half = len(records) // 2
        if half:
            page = client.get_stream_record(iterator, limit=half)
            read, iterator = page.records, page.next_iterator or ""
            half = len(read)
            assert read == records[:half]
        if iterator:
            positions[place] = (iterator, records[half:])
    return positions


# What is put there.


def put_many(client: ProtocolClient, table: str, numbers: range, width: int = 60) -> None:
    for start in range(numbers.start, numbers.stop, 100):
        some = range(start, min(numbers.stop, start + 100))
        writes = [
            Write("PUT", (("k", f"k{n:06}"),), [Put("n", n), Put("text", str(n) * width)])
            for n in some
        ]
        assert client.batch_write_row({table: writes}) == [None] * len(some)


def create_tables(client: ProtocolClient) -> None:
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    create_table(client)
    indexed_table.create(client, *INDEXES)
    client.create_table(PLAIN, [KeyColumn("k", STRING)])
    lives = pb.TableOptions(max_versions=1, time_to_live=86_400)
    client.create_table(OLD, [KeyColumn("k", STRING)], options=lives)
    client.create_table(COUNTED, [KeyColumn("k", STRING)], stream=stream)
    client.create_table(
        NUMBERED, [KeyColumn("k", STRING), KeyColumn("id", INTEGER, auto_increment=True)]
    )


def number(client: ProtocolClient) -> int:
    """Put a row whose number the server gives; return it."""
    key = client.put_row(NUMBERED, (("k", "k"), ("id", Special.AUTO_INCREMENT)), [Put("a", 1)])
    found = dict(key)["id"]
    assert isinstance(found, int)
    return found


def split(client: ProtocolClient, table: str) -> None:
    [shard] = client.call_json("RowtideListShards", {"table": table})["shards"]
    fields = {"table": table, "shard": shard["shard"]}
    wait_until(lambda: bool(client.call_json("RowtideSplitShard", fields)), what="split")
    wait_until(
        lambda: (
            sum(
                one["sealed_us"] is None
                for one in client.call_json("RowtideListShards", {"table": table})["shards"]
            )
            == 2
        ),
        what="two shards",
    )


def starts(client: ProtocolClient, table: str) -> list[int]:
    """Return where the logs of a table's shards begin."""
    status = client.call_json("RowtideStatus", {})
    return [s["start"] for slot in status["slots"] for s in slot["shards"] if s["table"] == table]


def write_rows(server: Server, *, seed: int, first: int) -> list[Written]:
    """Write rows of their own and shared counters, by writers from number ``first`` on."""
    with Load(server, seed=seed, first=first) as load:
        wait_until(lambda: load.applied >= LOAD_ROWS, what=f"{LOAD_ROWS} rows")
    return load.written


# Readers of changes, and the two commands.


@contextmanager
def reading(server: Server, file: Path, consumer: str) -> Iterator[None]:
    """Run a reader of changes that appends a line for each to a file; stop it at the end."""
    command = [sys.executable, "-m", "tests.changes.reader_process", "--table", COUNTED]
    command += ["--server", json.dumps(server.ready()._asdict())]
    command += ["--consumer", consumer, "--file", str(file)]
    child = subprocess.Popen(command, cwd=ROOT)
    try:
        yield
        child.terminate()
        assert child.wait(END_S_MAX) == 0
    finally:
        child.kill()
        child.wait()


def numbers_read(file: Path) -> list[int]:
    return [json.loads(line)[1] for line in file.read_text().splitlines()] if file.exists() else []


def rowtide(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROWTIDE, *arguments], capture_output=True, text=True, timeout=END_S_MAX)


KILLED_AT = """
import os, signal, sys
from rowtide.cli import moving
from rowtide.cli.main import main

at = sys.argv.pop(1)

class KilledAt(moving.ProgressLines):
    def __call__(self, name, records, size):
        if name.startswith(at):
            os.kill(os.getpid(), signal.SIGKILL)

moving.ProgressLines = KilledAt
main()
"""


def run_killed(*arguments: str, at: str) -> None:
    """Run a command that ends as by a power cut at the first report of a partition named so.

    From outside it might be killed too late: a quick machine ends it within milliseconds.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", KILLED_AT, at, *arguments],
        capture_output=True,
        text=True,
        timeout=END_S_MAX,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


# The move.


@dataclass(slots=True)
class Before:
    """What clients know of the local server when it ends."""

    found: dict[str, Any]
    positions: dict[tuple[str, str], tuple[str, list[StreamRecord]]]
    """Iterators in the middle of each stream, and what follows them."""
    written: list[Written]
    number: int
    """The last that the server gave."""
    key: dict[str, str]
    """A key that was made."""


def fill_long_ago(server: Server) -> None:
    """Write what is expired today, or trimmed."""
    server.start()
    with server.client() as client:
        create_tables(client)
        put_many(client, OLD, range(50))
        put_many(client, COUNTED, range(100))
    server.stop()


def fill_today(server: Server, file: Path, seed: int) -> Before:
    """Write into every table, split two of them, and read half of what changed."""
    server.start()
    with server.client() as client:
        put_many(client, OLD, range(50, 60))
        put_many(client, PLAIN, range(PLAIN_ROWS))
        put_many(client, COUNTED, range(100, 200))
        split(client, PLAIN)
        indexed_table.fill(client, 120)
        load = write_rows(server, seed=seed, first=0)
        split(client, TABLE)
        load += write_rows(server, seed=seed, first=10)
        with reading(server, file, consumer="reader"):
            wait_until(lambda: len(numbers_read(file)) > 20, what="20 changes read")
        put_many(client, COUNTED, range(200, COUNTED_ROWS))
        wait_until(lambda: indexed_table.has_followed(client), what="indexes follow")
        wait_until(lambda: min(starts(client, COUNTED)) >= 100, what="a stream's log trimmed")
        wait_until(lambda: min(starts(client, PLAIN)) > 0, what="logs trimmed")
        last = number(client)
        key = client.call_json("RowtideCreateKey", {"instances": ["system"]})
        found = everything(client)
        before = Before(found, half_read(client, found["streams"]), load, last, key)
    server.kill()  # Nothing is flushed any more, and its leases are not released.
    return before


def export_twice(directory: Path, folder: Path, prefix: str) -> None:
    """Export; the first call is killed in the midst."""
    export = ("export", str(folder), "--data", str(directory), "--topic-prefix", prefix)
    run_killed(*export, at="shard.")
    assert any(folder.glob("shard.*.records"))
    assert not (folder / "manifest.json").exists()
    done = rowtide(*export)
    assert (done.returncode, done.stderr) == (0, "")


def import_twice(folder: Path, broker: str, prefix: str) -> None:
    """Import; the first call is killed in the midst, and no worker serves what it left."""
    kafka = ("--kafka", broker, "--topic-prefix", prefix)
    run_killed("import", str(folder), *kafka, at="fill shard.")
    data_dir = str(folder.with_name("too-early"))
    refused = rowtide("worker", *kafka, "--port", "0", "--data-dir", data_dir)
    assert refused.returncode == 1
    assert "is not finished: run the same `rowtide import` again" in refused.stderr
    done = rowtide("import", str(folder), *kafka)
    assert done.returncode == 0, done.stderr


def check_same(client: ProtocolClient, before: Before) -> None:
    """Compare all that clients see with what they saw, and read on in the streams."""
    again = everything(client)
    for what, wanted in before.found.items():
        assert again[what] == wanted, what
    for iterator, follows in before.positions.values():
        assert read_on(client, iterator, limit=7) == follows
    assert len(client.call_json("RowtideStatus", {})["slots"]) == SLOTS


def check_going_on(server: Server, before: Before, file: Path, seed: int) -> None:
    """Write and read more, and compare it all."""
    before.written += write_rows(server, seed=seed, first=20)
    with server.client() as client:
        check_all(client, before.written)
        assert number(client) > before.number
        put_many(client, COUNTED, range(COUNTED_ROWS, COUNTED_ROWS + 50))
        with reading(server, file, consumer="reader"):
            wait_until(lambda: COUNTED_ROWS + 49 in numbers_read(file), what="all changes read")
        assert numbers_read(file) == list(range(100, COUNTED_ROWS + 50)), "the others are expired"
        indexed_table.fill(client, 200)
        wait_until(lambda: indexed_table.has_followed(client), what="indexes follow")
        for index in INDEXES:
            assert indexed_table.compare_index(client, index) == 200
    ready = server.ready()._replace(**{n: before.key[n] for n in KEY_PAIR})
    with ProtocolClient(**ready._asdict()) as other:
        assert len(rows(other, PLAIN)) == PLAIN_ROWS


def test_a_directory_moves_into_kafka(
    make_server: MakeServer, broker: str, prefix: str, tmp_path: Path, seed: int
) -> None:
    quick = ("--flush-s", "0.3", "--trim-s", "0.3", "--table-operations-per-s", "0")
    local = ("--log", "local", "--topic-prefix", prefix, "--slots", str(SLOTS), *quick)
    directory, folder, file = tmp_path / "local", tmp_path / "export", tmp_path / "read"
    then_us = time.time_ns() // 1000 - 2 * DAY_US
    fill_long_ago(make_server(*local, "--test-clock-us", str(then_us), data_dir=directory))
    before = fill_today(make_server(*local, data_dir=directory), file, seed)

    export_twice(directory, folder, prefix)
    import_twice(folder, broker, prefix)

    kafka = ("--kafka", broker, "--topic-prefix", prefix, *quick)
    moved = make_server(*kafka, data_dir=tmp_path / "moved")
    moved.start()
    with moved.client() as client:
        check_same(client, before)
    check_going_on(moved, before, file, seed)
    moved.kill()
    moved.start()
    with moved.client() as client:
        check_all(client, before.written)


@pytest.mark.slow  # `test_a_directory_moves_into_kafka` shows the rule without a crash.
def test_a_broker_that_crashes_after_an_import_may_show_the_fillers(
    make_server: MakeServer, cache_dir: Path, prefix: str, tmp_path: Path
) -> None:
    """It notes how far logs are trimmed once a minute, and when a topic is deleted there."""
    quick = ("--flush-s", "0.3", "--trim-s", "0.3", "--topic-prefix", prefix)
    server = make_server("--log", "local", *quick, data_dir=tmp_path / "local")
    server.start()
    with server.client() as client:
        client.create_table(PLAIN, [KeyColumn("k", STRING)])
        put_many(client, PLAIN, range(500))
        wait_until(lambda: min(starts(client, PLAIN)) > 0, what="a log trimmed")
        put_many(client, PLAIN, range(400, 600))
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
        client.update_table(PLAIN, stream=stream)
        put_many(client, PLAIN, range(600, 650))
        found = rows(client, PLAIN), streams(client)
    server.stop()
    for _ in range(3):  # The catalog is trimmed, too, where it was read and written often.
        server.start()
        server.stop()
    folder, directory = str(tmp_path / "export"), str(tmp_path / "local")
    done = rowtide("export", folder, "--data", directory, "--topic-prefix", prefix)
    assert done.returncode == 0, done.stderr
    begun = EmbeddedConfig(tmp_path / "kafka", cache_dir)
    with EmbeddedBroker(begun) as broker:
        load = ("import", folder, "--kafka", broker.bootstrap, "--topic-prefix", prefix)
        assert rowtide(*load).returncode == 0
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
    (tmp_path / "kafka" / "topics" / "log-start-offset-checkpoint").unlink()
    with EmbeddedBroker(begun) as broker:
        assert 0 in asyncio.run(indexed_table.log_starts(broker.bootstrap, prefix))
        kafka = ("--kafka", broker.bootstrap, *quick)
        moved = make_server(*kafka, data_dir=tmp_path / "moved")
        moved.start()
        with moved.client() as client:
            assert (rows(client, PLAIN), streams(client)) == found
            put_many(client, PLAIN, range(700))
            assert len(rows(client, PLAIN)) == 700
        moved.stop()
