"""Secondary indexes under load on a worker that is killed, also while they are made and dropped.

The seed is printed; ROWTIDE_SEED repeats a run's writes and the moments of its kills.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rowtide.cli.client import NoAnswer, ServerError
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import ask
from tests.support.searches import examples
from tests.system.conftest import MakeServer
from tests.system.indexed_table import (
    TABLE,
    Writers,
    changelog_numbers,
    compare_index,
    create,
    fill,
    has_followed,
    index_meta,
    log_starts,
    store_numbers,
)
from tests.system.server import Server, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.system]

QUICK = ("--flush-s", "0.3", "--trim-s", "0.3", "--table-operations-per-s", "0")
OLD_ROWS = examples(2000, 4000)
BETWEEN_KILLS = 150
LOCAL, GLOBAL = (
    index_meta("by_local", pb.IT_LOCAL_INDEX),
    index_meta("by_global", pb.IT_GLOBAL_INDEX),
)
LATE = (index_meta("late_local", pb.IT_LOCAL_INDEX), index_meta("late_global", pb.IT_GLOBAL_INDEX))


@pytest.fixture
def server(make_server: MakeServer, broker: str, tmp_path: Path, seed: int) -> Server:
    """A server that flushes and trims all the time, on a broker that lives on."""
    return make_server(*QUICK, "--kafka", broker, data_dir=tmp_path / f"indexes{seed}")


def kill(server: Server, *, lose_rows: bool) -> None:
    server.kill()
    if lose_rows:
        shutil.rmtree(server.data_dir / "rows")
    server.start()


def kill_during(server: Server, work: Callable[[], None], after_s: float) -> None:
    """Kill while an operation is under way, or has just been answered."""
    running = threading.Thread(target=work)
    running.start()
    running.join(after_s)
    server.kill()
    running.join()


def create_late(server: Server) -> None:
    """Create the late indexes that are not there yet, over all rows."""
    with suppress(NoAnswer, ServerError), server.client() as client:
        there = {index.name for index in client.describe_table(TABLE).index_metas}
        for index in LATE:
            if index.name not in there:
                request = pb.CreateIndexRequest(
                    main_table_name=TABLE, index_meta=index, include_base_data=True
                )
                ask(client, request)


def drop_late(server: Server) -> None:
    """Drop those of the late indexes that are there."""
    with suppress(NoAnswer, ServerError), server.client() as client:
        there = {index.name for index in client.describe_table(TABLE).index_metas}
        for index in LATE:
            if index.name in there:
                ask(client, pb.DropIndexRequest(main_table_name=TABLE, index_name=index.name))


def wait_for_writes(writers: Writers) -> None:
    enough = writers.answered + BETWEEN_KILLS
    wait_until(lambda: writers.answered >= enough, what=f"{BETWEEN_KILLS} answers")


def check(server: Server, *indexes: pb.IndexMeta) -> int:
    """Hold the local indexes to the table at once, the global ones when they have followed."""
    with server.client() as client:
        for index in indexes:
            if index.index_type == pb.IT_LOCAL_INDEX and index not in LATE:
                compare_index(client, index)
        wait_until(lambda: has_followed(client), what="every index follows")
        (count,) = {compare_index(client, index) for index in indexes}
    return count


def test_indexes_agree_with_their_table_whatever_is_killed(
    server: Server, broker: str, seed: int
) -> None:
    chance = random.Random(seed)
    prefix = f"system{server.data_dir.name}"
    server.start()
    with server.client() as client:
        create(client, LOCAL, GLOBAL)
        fill(client, OLD_ROWS)
    with Writers(server, seed=seed) as writers:
        wait_for_writes(writers)
        kill(server, lose_rows=False)
        wait_for_writes(writers)
        kill_during(server, lambda: create_late(server), chance.uniform(0.02, 0.4))
        server.start()
        create_late(server)
        wait_for_writes(writers)
        kill(server, lose_rows=True)
        wait_for_writes(writers)
    count = check(server, LOCAL, GLOBAL, *LATE)
    assert count >= OLD_ROWS
    with Writers(server, seed=seed + 1) as writers:
        wait_for_writes(writers)
        kill_during(server, lambda: drop_late(server), chance.uniform(0.01, 0.2))
        shutil.rmtree(server.data_dir / "rows")
        server.start()
        drop_late(server)
        wait_for_writes(writers)
    assert check(server, LOCAL, GLOBAL) >= OLD_ROWS

    def swept() -> bool:
        return len(asyncio.run(changelog_numbers(broker, prefix))) == 3

    def is_trimmed() -> bool:
        starts = asyncio.run(log_starts(broker, prefix))
        assert len(starts) == 2, "the logs of the table and of one global index"
        return min(starts) > 0

    wait_until(swept, what="the changelog holds the table and two indexes")
    wait_until(is_trimmed, what="both logs trimmed")
    server.stop()
    assert store_numbers(server) == asyncio.run(changelog_numbers(broker, prefix))
