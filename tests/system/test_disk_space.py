"""A disk that fills up: writes are refused in time, and if it is full, nothing is lost.

The data directory lies on a small file system of its own, which only root may mount.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Put
from rowtide.stream.shard.row_store import RowStore, StoreFailed
from tests.system.conftest import MakeServer
from tests.system.history import check_all
from tests.system.load import TABLE, Load, create_table, key_of
from tests.system.server import wait_until
from tests.system.small_disk import PIECE, Ballast, NoDisk, small_disk

pytestmark = [pytest.mark.kafka, pytest.mark.system]

DISK = 500 << 20
FREE_MIN = 200 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of ``DISK`` bytes."""
    with ExitStack() as closing:
        try:
            yield closing.enter_context(small_disk(tmp_path / "disk", DISK))
        except NoDisk as error:
            pytest.skip(str(error))


def put(client: ProtocolClient, name: str) -> None:
    client.put_row(TABLE, key_of(name), [Put("a", name)])


def refusal(client: ProtocolClient) -> ServerError | None:
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
        refusals: list[ServerError | None] = [None]

        def is_refused() -> bool:
            refusals.append(refusal(client))
            return refusals[-1] is not None

        wait_until(is_refused, what="writes refused")
        error = refusals[-1]
        assert error is not None
        assert error.code == "OTSServerUnavailable"
        assert "disk is almost full" in error.message
        assert str(FREE_MIN) in error.message
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
        wait_until(lambda: is_stalled(load, ballast), what="no write for a while", timeout_s=120)
        wait_until(lambda: load.failed > 4, what="failed writes")
        ballast.drop()
        before = load.applied
        seconds = wait_until(
            lambda: load.applied > before + 100, what="writes again", timeout_s=120
        )
    with server.client() as client:
        counts = check_all(client, load.written)
    print(f"{counts}, 100 rows written {seconds:.1f} s after space returned")  # noqa: T201


def is_stalled(load: Load, ballast: Ballast) -> bool:
    """Fill whatever is free; return whether nothing was acknowledged for two seconds."""
    ballast.leave(0)
    before = load.applied
    with suppress(AssertionError):
        wait_until(lambda: load.applied > before, what="a write", timeout_s=2)
    return load.applied == before


def test_rows_whose_disk_is_full_can_be_closed_and_opened_again(disk: Path) -> None:
    rows = RowStore(disk / "rows")
    rows.write([(b"first", bytes(PIECE))])
    rows.flush()
    rows.write([(b"second", bytes(PIECE))])
    ballast = Ballast(disk)
    ballast.leave(0)
    with pytest.raises(StoreFailed, match="No space left"):
        rows.close()
    with pytest.raises(StoreFailed, match="No space left"):
        RowStore(disk / "rows")
    ballast.drop()
    again = RowStore(disk / "rows")
    assert again.get(b"first") == bytes(PIECE)
    assert again.get(b"second") is None, "what is not on disk comes from the log"
    again.close()
