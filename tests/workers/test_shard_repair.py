"""A shard whose log lost acknowledged entries: closed, reported, and served again on request."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.cli.main import main
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.topics import TopicNames, TopicSpec
from tests.api.calls import ask, key, put, puts, read_row, shown
from tests.support.waiting import until
from tests.workers.conftest import SLOTS, Workers, repeat
from tests.workers.test_forwarding import create
from tests.workers.test_handover import LONG

pytestmark = pytest.mark.system

SHARD = "s1"
ROWS = 5
ASKED = 4


def fill(workers: Workers) -> ProtocolClient:
    """Start a worker and write rows of one shard."""
    client = workers.start(*LONG)
    repeat(partial(ask, client, create("t")))
    for number in range(ROWS):
        repeat(partial(ask, client, put("t", key("a", number), puts(n=number))))
    return client


async def fill_and_lose(workers: Workers, broker: str, folder: Path) -> tuple[ProtocolClient, int]:
    """Fill a shard and lose its log; return the worker, started again, and the log's former end."""
    fill(workers)
    workers.running[0].stop()
    log = TopicNames(folder.name, "").shard(SHARD)
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        _, end = await cluster.log(log).bounds()
        await cluster.delete_topics([log])
        await cluster.create_topics([TopicSpec(log)])
    client = workers.again(0)
    until(lambda: "were acknowledged" in refusal_of(workers))  # Once the shard was opened.
    return client, end


def refusal_of(workers: Workers) -> str:
    """Return why a row of the shard can't be read."""
    with workers.another() as client, pytest.raises(ServerError) as refused:
        read_row(client, "t", key("a", 0))
    return refused.value.message


def repair(data_dir: Path, *options: str) -> str:
    """Run the command; return what it says."""
    arguments = ["shard", "repair", SHARD, "--data-dir", str(data_dir), *options]
    result = CliRunner().invoke(main, arguments, prog_name="rowtide")
    assert result.exit_code == 0, result.output
    return result.output


def read_rows(client: ProtocolClient) -> list[Any]:
    """Return what is left of the rows."""
    rows = [shown(read_row(client, "t", key("a", number))) for number in range(ROWS)]
    return [row and row["n"] for row in rows]


async def test_rows_survive_the_loss_of_their_log(
    workers: Workers, broker: str, tmp_path: Path
) -> None:
    client, end = await fill_and_lose(workers, broker, tmp_path)
    data_dir = tmp_path / "worker0"
    line = f"Entries 0 to {end - 1} of {SHARD} ({end}) are lost."
    assert line in repair(data_dir)
    assert "were acknowledged" in refusal_of(workers)
    assert f"{SHARD} is served again." in repair(data_dir, "--accept-loss")
    assert read_rows(client) == list(range(ROWS))
    ask(client, put("t", key("a", 0), puts(n=77)))
    # What the rows had is in the changelog now: another disk has it too.
    workers.running[0].kill()
    shutil.rmtree(data_dir / "rows")
    assert read_rows(workers.again(0)) == [77, *range(1, ROWS)]


async def test_what_was_deleted_before_it_was_applied_is_lost(
    workers: Workers, broker: str, tmp_path: Path
) -> None:
    client = fill(workers)
    workers.running[0].kill()
    data_dir = tmp_path / "worker0"
    shutil.rmtree(data_dir / "rows")
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        log = cluster.log(TopicNames(tmp_path.name, "").shard(SHARD))
        _, end = await log.bounds()
        await log.trim(end - 1)
    client = workers.again(0)
    until(lambda: "are gone" in refusal_of(workers))
    with pytest.raises(ServerError, match="does not exist"):
        client.call_json("RowtideRepairShard", {"shard": "s99"})
    assert f"Entries 0 to {end - 2} of {SHARD}" in repair(data_dir)
    assert f"{SHARD} is served again." in repair(data_dir, "--accept-loss")
    assert read_rows(client) == [None] * (ROWS - 1) + [ROWS - 1]
    with pytest.raises(ServerError, match="is not closed"):
        client.call_json("RowtideRepairShard", {"shard": SHARD})


def opening(client: ProtocolClient) -> set[str]:
    """Return the shards that can't be opened, and are tried again."""
    slots = client.call_json("RowtideStatus", {})["slots"]
    return {shard for slot in slots for shard in slot["opening"]}


async def test_a_worker_serves_all_others_where_a_topic_was_deleted(
    workers: Workers, broker: str, tmp_path: Path
) -> None:
    """It starts, and its tables are read, made and dropped: the one without its log, too."""
    client = fill(workers)
    repeat(partial(ask, client, create("u")))
    workers.running[0].stop()
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        await cluster.delete_topics([TopicNames(tmp_path.name, "").shard(SHARD)])
    client = workers.again(0)
    ask(client, put("u", key("a", 1), puts(n=1)))
    assert refusal_of(workers) == "The partition is not available."
    assert opening(client) == {SHARD}
    for number in range(SLOTS):
        repeat(partial(ask, client, create(f"more{number}")))
        ask(client, put(f"more{number}", key("a", 1), puts(n=1)))
    ask(client, pb.DeleteTableRequest(table_name="t"))
    until(lambda: not opening(client))


async def test_a_repair_that_is_asked_for_again_meanwhile_is_done_once(
    workers: Workers, broker: str, tmp_path: Path
) -> None:
    """A client that timed out at the first request asks again."""
    client, _ = await fill_and_lose(workers, broker, tmp_path)
    with ThreadPoolExecutor(ASKED) as threads:
        answers = sorted(threads.map(accept_loss, [workers] * ASKED))
    assert answers == ["", *[f"Shard '{SHARD}' is not closed."] * (ASKED - 1)]
    assert read_rows(client) == list(range(ROWS))


def accept_loss(workers: Workers) -> str:
    """Have the loss accepted; return what was refused, and why."""
    with workers.another() as client:
        try:
            client.call_json("RowtideRepairShard", {"shard": SHARD, "accept_loss": True})
        except ServerError as error:
            return error.message
    return ""
