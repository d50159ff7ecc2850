"""The local log with real processes that are killed: what holds on Kafka holds here, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from tests.support.searches import examples
from tests.system.conftest import MakeServer
from tests.system.history import all_rows, check_all, differences
from tests.system.load import TABLE, Load, Written, create_table
from tests.system.server import Server, wait_until
from tests.system.small_disk import Ballast, NoDisk, small_disk
from tests.system.test_disk_space import DISK, is_stalled
from tests.system.test_kill9 import FLUSHES, prove

pytestmark = pytest.mark.system

LOCAL = ("--log", "local")
QUICK = (*LOCAL, "--flush-s", "0.3", "--trim-s", "0.3")
AMOUNT = 400


def test_what_was_acknowledged_survives_kills(make_server: MakeServer, seed: int) -> None:
    prove(make_server(*FLUSHES, *LOCAL), seed, examples(3, 6), ["worker"])


def test_a_start_after_a_kill_waits_for_no_lease(make_server: MakeServer) -> None:
    server = make_server(*LOCAL, "--lease-s", "120")
    server.start()
    server.kill()
    assert server.start() < 60


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own."""
    with ExitStack() as closing:
        try:
            yield closing.enter_context(small_disk(tmp_path / "disk", DISK))
        except NoDisk as error:
            pytest.skip(str(error))


def test_a_full_disk_loses_nothing_and_service_returns_with_space(
    make_server: MakeServer, disk: Path
) -> None:
    server = make_server(*LOCAL, "--free-bytes-min", "0", "--flush-s", "1", data_dir=disk / "data")
    server.start()
    with server.client() as client:
        create_table(client)
    ballast = Ballast(disk)
    with Load(server, seed=1) as load:
        wait_until(lambda: load.applied > 300, what="300 rows")
        wait_until(lambda: is_stalled(load, ballast), what="no write for a while", timeout_s=120)
        wait_until(lambda: load.failed > 4, what="failed writes")
        ballast.drop()
        before = load.applied
        wait_until(lambda: load.applied > before + 100, what="writes again", timeout_s=120)
    with server.client() as client:
        check_all(client, load.written)
    server.kill()
    server.start()
    with server.client() as client:
        check_all(client, load.written)


# The rows are a cache of the log.


@pytest.fixture
def server(make_server: MakeServer) -> Server:
    """A server that flushes and trims all the time."""
    return make_server(*QUICK)


def prepare(server: Server, *, stream: bool) -> None:
    server.start()
    with server.client() as client:
        create_table(client, stream=stream)


def write(server: Server, *, seed: int, amount: int = AMOUNT) -> list[Written]:
    with Load(server, seed=seed) as load:
        wait_until(lambda: load.applied >= amount, what=f"{amount} rows")
    return load.written


def rows_of(server: Server) -> dict[tuple[object, ...], dict[str, dict[int, object]]]:
    with server.client() as client:
        return all_rows(client)


def shard(client: ProtocolClient) -> dict[str, int]:
    """Return the status of the table's only shard."""
    status = client.call_json("RowtideStatus", {})
    [found] = [
        shard for slot in status["slots"] for shard in slot["shards"] if shard["table"] == TABLE
    ]
    assert isinstance(found, dict)
    return found


def is_trimmed(server: Server) -> bool:
    """Return True if the changelog has every row, and the log was trimmed so far."""
    with server.client() as client:
        found = shard(client)
    return found["unflushed"] == 0 and found["start"] > AMOUNT // 2


def replace_rows(server: Server, copy: Path | None) -> None:
    """Put ``copy``, or nothing, in place of the rows, and start."""
    shutil.rmtree(server.data_dir / "rows")
    if copy is not None:
        shutil.copytree(copy, server.data_dir / "rows")
    server.start()


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_lost_rows_are_rebuilt_from_the_log(server: Server, end: str) -> None:
    prepare(server, stream=True)
    written = write(server, seed=1)
    before = rows_of(server)
    server.stop() if end == "stop" else server.kill()
    replace_rows(server, None)
    assert differences(rows_of(server), before) == []
    with server.client() as client:
        check_all(client, written)


def test_lost_rows_are_rebuilt_from_the_changelog_where_the_log_is_trimmed(
    server: Server,
) -> None:
    prepare(server, stream=False)
    write(server, seed=2)
    wait_until(lambda: is_trimmed(server), what="the log trimmed")
    before = rows_of(server)
    server.kill()
    replace_rows(server, None)
    assert differences(rows_of(server), before) == []


@pytest.mark.parametrize(
    "stream",
    [pytest.param(True, id="log kept", marks=pytest.mark.slow), pytest.param(False, id="trimmed")],
)
def test_an_old_copy_of_the_rows_resurrects_and_loses_nothing(
    server: Server, tmp_path: Path, *, stream: bool
) -> None:
    prepare(server, stream=stream)
    write(server, seed=3)
    server.stop()
    copy = shutil.copytree(server.data_dir / "rows", tmp_path / "copy")
    server.start()
    write(server, seed=4)
    if not stream:
        wait_until(lambda: is_trimmed(server), what="the log trimmed")
    before = rows_of(server)
    server.stop()
    replace_rows(server, copy)
    assert differences(rows_of(server), before) == []
    # The next writes build on what came back, and a second rebuild agrees with them.
    write(server, seed=5, amount=100)
    before = rows_of(server)
    server.kill()
    replace_rows(server, None)
    assert differences(rows_of(server), before) == []


def test_an_old_copy_of_the_log_is_not_taken_for_the_whole(server: Server, tmp_path: Path) -> None:
    """The rows have more than it does: their shard is not served, and the status says why."""
    prepare(server, stream=True)
    write(server, seed=6)
    server.stop()
    copy = shutil.copytree(server.data_dir / "log", tmp_path / "copy")
    server.start()
    write(server, seed=7)
    server.stop()
    shutil.rmtree(server.data_dir / "log")
    shutil.copytree(copy, server.data_dir / "log")
    server.start()
    with server.client() as client:

        def is_reported() -> bool:
            """A changelog that lacks its end closes the whole slot, again and again."""
            slots = client.call_json("RowtideStatus", {})["slots"]
            reasons = [reason for slot in slots for reason in slot["closed"].values()]
            failures = [slot["failure"] for slot in slots if slot["failure"]]
            return any("ends at" in text for text in reasons + failures)

        wait_until(is_reported, what="the status says what the log lacks")
    with pytest.raises(ServerError, match="OTSPartitionUnavailable"):
        rows_of(server)
