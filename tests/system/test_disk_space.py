"""A disk that fills up: writes are refused in time, and if it is full, nothing is lost.

The data directory lies on a small file system of its own, which only root may mount.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rowtide.cli.client import Client, ServerError
from rowtide.cli.wire_row import Put
from tests.system.conftest import MakeServer
from tests.system.history import check_all
from tests.system.load import TABLE, Load, create_table, key_of
from tests.system.server import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

DISK = 500 << 20
FREE_MIN = 200 << 20
PIECE = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of ``DISK`` bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "rowtide-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system can't be mounted here: this test needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file that takes space from everybody else."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._file = disk / "ballast"

    @property
    def free(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize

    def leave(self, free: int) -> None:
        """Grow until at most ``free`` bytes are left."""
        with suppress(OSError), self._file.open("ab", buffering=0) as file:
            while (excess := self.free - free) > 0:
                file.write(bytes(min(PIECE, excess)))

    def drop(self) -> None:
        """Give all of it back."""
        self._file.unlink(missing_ok=True)


def put(client: Client, name: str) -> None:
    client.put_row(TABLE, key_of(name), [Put("a", name)])


def refusal(client: Client) -> ServerError | None:
    """Write; return what the server said, or None where it was taken."""
    try:
        put(client, "refused")
    except ServerError as error:
        return error
    return None


def test_writes_are_refused_below_the_limit_and_come_back(
    make_server: MakeServer, disk: Path
) -> None:
    server = make_server("--free-bytes-min", str(FREE_MIN), data_dir=disk / "data")
    server.start()
    ballast = Ballast(disk)
    with server.client() as client:
        create_table(client)
        put(client, "before")
        ballast.leave(FREE_MIN - PIECE)
        wait_until(lambda: refusal(client) is not None, what="writes refused")
        told = refusal(client)
        assert told is not None
        assert told.code == "OTSServerUnavailable"
        assert "disk is almost full" in told.message
        assert str(FREE_MIN) in told.message
        assert client.get_row(TABLE, key_of("before")) is not None
        ballast.drop()
        wait_until(lambda: refusal(client) is None, what="writes taken again")
        put(client, "after")
        assert client.get_row(TABLE, key_of("after")) is not None


def test_a_full_disk_loses_nothing_and_service_returns_with_space(
    make_server: MakeServer, disk: Path
) -> None:
    server = make_server("--free-bytes-min", "0", "--flush-s", "1", data_dir=disk / "data")
    server.start()
    with server.client() as client:
        create_table(client)
    ballast = Ballast(disk)
    with Load(server, seed=1) as load:
        wait_until(lambda: load.applied > 300, what="300 rows")
        wait_until(lambda: stalled(load, ballast), what="no write for a while", timeout_s=120)
        wait_until(lambda: load.failed > 4, what="clients told so")
        ballast.drop()
        before = load.applied
        seconds = wait_until(
            lambda: load.applied > before + 100, what="writes again", timeout_s=120
        )
    with server.client() as client:
        counts = check_all(client, load.written)
    print(f"{counts}, 100 rows written {seconds:.1f} s after space returned")  # noqa: T201


def stalled(load: Load, ballast: Ballast) -> bool:
    """Fill whatever is free; say whether nothing was acknowledged for two seconds."""
    ballast.leave(0)
    before = load.applied
    with suppress(AssertionError):
        wait_until(lambda: load.applied > before, what="a write", timeout_s=2)
    return load.applied == before
