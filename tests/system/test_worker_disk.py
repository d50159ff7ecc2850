"""The worker's disk is a cache: lost, damaged or of before, the rows are those of the logs.

Where logs are trimmed the rows come from the changelog alone, else from changelog and log. In
``make test-all`` also an embedded broker ends with its worker.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.system.conftest import MakeServer
from tests.system.history import all_rows, check_all, differences
from tests.system.indexed_table import log_starts
from tests.system.load import TABLE, Load, Written, create_table
from tests.system.server import Server, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

QUICK = ("--flush-s", "0.3", "--trim-s", "0.3")
AMOUNT = 400


@pytest.fixture(params=["make_worker", pytest.param("make_server", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Server:
    """A server that flushes and trims all the time, on the run's broker or with one of its own."""
    make: MakeServer = request.getfixturevalue(request.param)
    return make(*QUICK)


def write(server: Server, *, seed: int, amount: int = AMOUNT) -> list[Written]:
    """Write until ``amount`` rows are acknowledged."""
    with Load(server, seed=seed) as load:
        wait_until(lambda: load.applied >= amount, what=f"{amount} rows")
    return load.written


def rows_of(server: Server) -> dict[tuple[object, ...], dict[str, dict[int, object]]]:
    with server.client() as client:
        return all_rows(client)


def is_flushed(server: Server) -> bool:
    """True if the changelog has every row."""
    with server.client() as client:
        status = client.call_json("RowtideStatus", {})
    shards = [shard for slot in status["slots"] for shard in slot["shards"]]
    return bool(shards) and all(shard["unflushed"] == 0 for shard in shards)


def log_start(server: Server, broker: str) -> int:
    """Return where the table's only log begins."""
    place = server.data_dir / "kafka" / "state.json"
    if place.exists():  # The broker is its own.
        broker = f"127.0.0.1:{json.loads(place.read_text())['port']}"
    [start] = asyncio.run(log_starts(broker, f"system{server.data_dir.name}"))
    return start


def rebuilt(server: Server, copy: Path | None = None) -> float:
    """Put ``copy``, or nothing, in place of the rows; return the seconds of the start."""
    rows = server.data_dir / "rows"
    shutil.rmtree(rows)
    if copy is not None:
        shutil.copytree(copy, rows)
    return server.start()


def prepare(server: Server, *, stream: bool) -> None:
    server.start()
    with server.client() as client:
        create_table(client, stream=stream)


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_rows_are_rebuilt_from_kafka_alone(server: Server, end: str) -> None:
    prepare(server, stream=True)
    written = write(server, seed=1)
    before = rows_of(server)
    server.stop() if end == "stop" else server.kill()
    seconds = rebuilt(server)
    assert differences(rows_of(server), before) == []
    with server.client() as client:
        check_all(client, written)
    print(f"rebuilt {len(before)} rows, ready after {seconds:.1f} s")  # noqa: T201


def test_rows_are_rebuilt_where_the_log_is_trimmed(server: Server, broker: str) -> None:
    prepare(server, stream=False)
    write(server, seed=2)
    before = rows_of(server)
    wait_until(lambda: log_start(server, broker) > AMOUNT // 2, what="the log trimmed")
    server.kill()
    rebuilt(server)
    assert differences(rows_of(server), before) == []


def test_damaged_rows_are_rebuilt(server: Server) -> None:
    prepare(server, stream=False)
    write(server, seed=8)
    before = rows_of(server)
    server.stop()
    lists = list((server.data_dir / "rows").glob("*/MANIFEST*"))
    assert lists
    for manifest in lists:
        manifest.write_bytes(b"this is no list of files")
    server.start()
    assert differences(rows_of(server), before) == []


def test_rows_of_which_a_part_cannot_be_read_are_rebuilt(server: Server) -> None:
    """A range that meets it fails rather than lack rows; soon it is whole again."""
    prepare(server, stream=False)
    write(server, seed=9)
    before = rows_of(server)
    server.stop()
    tables = (server.data_dir / "rows").glob("*/*.sst")
    largest = max(tables, key=lambda file: file.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(content)
    server.start()

    def whole() -> bool:
        assert differences(rows_of(server), before) == []
        return True

    wait_until(whole, what="the rows rebuilt")


@pytest.mark.parametrize(
    "stream",
    [pytest.param(True, id="log kept", marks=pytest.mark.slow), pytest.param(False, id="trimmed")],
)
def test_an_old_copy_of_the_rows_resurrects_and_loses_nothing(
    server: Server, broker: str, tmp_path: Path, *, stream: bool
) -> None:
    prepare(server, stream=stream)
    written = write(server, seed=3)
    server.stop()
    copy = shutil.copytree(server.data_dir / "rows", tmp_path / "copy")
    server.start()
    for seed in (4, 5):
        written += write(server, seed=seed)
        wait_until(lambda: is_flushed(server), what="everything flushed")
    if not stream:
        wait_until(lambda: log_start(server, broker) > AMOUNT, what="the log trimmed")
    before = rows_of(server)
    server.stop()
    rebuilt(server, copy)
    assert differences(rows_of(server), before) == []
    # The next writes build on what came back, and a second rebuild agrees with them.
    write(server, seed=6, amount=100)
    before = rows_of(server)
    server.kill()
    rebuilt(server)
    assert differences(rows_of(server), before) == []


@pytest.mark.slow
def test_rows_of_a_dropped_table_do_not_come_back(server: Server, tmp_path: Path) -> None:
    prepare(server, stream=False)
    write(server, seed=7)
    wait_until(lambda: is_flushed(server), what="everything flushed")
    server.stop()
    copy = shutil.copytree(server.data_dir / "rows", tmp_path / "copy")
    server.start()
    with server.client() as client:
        client.delete_table(TABLE)
        create_table(client, stream=False)
        assert all_rows(client) == {}
    server.stop()
    rebuilt(server, copy)
    assert rows_of(server) == {}
