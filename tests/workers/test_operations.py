"""What an operator asks of one worker is about all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.deploy.up import NotReady
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from tests.api.calls import ask, key, put, puts, read_row, shown
from tests.changed_topics import change_topic
from tests.support.waiting import until
from tests.workers.conftest import SLOTS, Workers, repeat
from tests.workers.test_forwarding import create
from tests.workers.test_handover import LONG, TABLES, check_all, write_all

pytestmark = pytest.mark.system


def slots(client: ProtocolClient) -> list[dict[str, Any]]:
    """Return the slots of the called worker."""
    found: list[dict[str, Any]] = client.call_json("RowtideStatus", {})["slots"]
    return found


def list_paused(client: ProtocolClient) -> set[bool]:
    """True if the reclaimers of a worker's slots are paused."""
    return {slot["reclaimer"]["paused"] for slot in slots(client)}


def test_a_drained_worker_gives_its_slots_away_and_answers_all_the_same(workers: Workers) -> None:
    first, second = workers.start(*LONG), workers.start(*LONG)
    workers.wait_until_divided()
    for name in TABLES:
        repeat(partial(ask, first, create(name)))
    write_all([first], 0)
    address = second.call_json("RowtideStatus", {})["address"]
    assert first.call_json("RowtideDrain", {"worker": address})["drained"]
    assert slots(second) == []

    def states() -> list[tuple[bool, bool]]:
        found = second.call_json("RowtideClusterStatus", {})["workers"]
        return [(worker["drained"], worker["ready"]) for worker in found]

    # The first worker is ready again once it has opened the slots that it got.
    until(lambda: states() == [(True, False), (False, True)], "the slots open elsewhere")
    write_all([second], 1)
    check_all(second, range(2))
    with pytest.raises(ServerError, match="No other worker"):
        first.call_json("RowtideDrain", {})
    workers_known = second.call_json("RowtideClusterStatus", {})["workers"]
    for worker in workers_known:  # A forgotten worker would learn nothing any more.
        with pytest.raises(ServerError, match="is alive"):
            first.call_json("RowtideForgetWorker", {"worker": worker["address"]})
    assert len(second.call_json("RowtideClusterStatus", {})["workers"]) == 2
    # What is made elsewhere is known at once to a worker without slots.
    made = first.call_json("RowtideCreateKey", {"instances": ["demo"]})
    access = {name: made[name] for name in ("access_key_id", "access_key_secret")}
    with ProtocolClient(second.endpoint, instance="demo", **access) as known:
        assert known.list_table() == TABLES
    assert not second.call_json("RowtideUndrain", {})["drained"]
    workers.wait_until_divided()
    write_all([second], 2)
    check_all(first, range(3))


def test_a_pause_of_the_reclaimer_holds_for_all_workers_and_over_restarts(workers: Workers) -> None:
    clients = [workers.start(*LONG) for _ in range(2)]
    workers.wait_until_divided()
    repeat(partial(clients[0].call_json, "RowtidePauseReclaimer", {}))
    assert [list_paused(client) for client in clients] == [{True}, {True}]
    for worker in workers.running:
        worker.stop()
    workers.running.clear()
    workers.clients.clear()
    again = workers.start(*LONG)
    assert list_paused(again) == {True}
    repeat(partial(again.call_json, "RowtideResumeReclaimer", {}))
    assert list_paused(again) == {False}


def test_consumption_and_reclaiming_are_those_of_all_workers(workers: Workers) -> None:
    clients = [workers.start() for _ in range(3)]
    workers.wait_until_divided()
    repeat(partial(ask, clients[0], create("wide", "d", "h", "m", "q", "u")))
    letters = "behkmoqsuw"
    for version in (1, 2):
        for letter in letters:
            repeat(partial(ask, clients[1], put("wide", key(letter, 1), puts(n=version))))
    for client in clients:
        # A worker that gets no processor for seconds is silent.
        until(lambda client=client: not client.call_json("RowtideConsumption", {})["silent"])  # type: ignore[misc]
        consumption = client.call_json("RowtideConsumption", {"table": "wide"})
        assert sum(hour["write"] for hour in consumption["hours"]) == 2 * len(letters)
        assert consumption["silent"] == []
        done = client.call_json("RowtideReclaim", {"table": "wide"})
        assert done["rows"] >= len(letters)
    workers.running[2].kill()
    consumption = repeat_for_answer(
        partial(clients[0].call_json, "RowtideConsumption", {"table": "wide"})
    )
    assert len(consumption["silent"]) == 1
    address = consumption["silent"][0]["address"]
    repeat(partial(clients[0].call_json, "RowtideForgetWorker", {"worker": address}))
    until(lambda: not clients[1].call_json("RowtideConsumption", {})["silent"])
    assert shown(read_row(clients[0], "wide", key("w", 1))) == {"n": 2}


def repeat_for_answer(attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do what SDKs repeat until it succeeds; return its answer."""
    answers: list[dict[str, Any]] = []
    repeat(lambda: answers.append(attempt()))
    return answers[0]


def test_a_request_to_a_dead_worker_says_so(workers: Workers) -> None:
    first, second = workers.start(*LONG), workers.start(*LONG)
    workers.wait_until_divided()
    address = second.call_json("RowtideStatus", {})["address"]
    workers.running[1].kill()
    with ProtocolClient(**workers.ready(0)) as asking:
        for operation in ("RowtideDrain", "RowtideUndrain"):
            with pytest.raises(ServerError, match=f"Worker '{address}' does not answer"):
                asking.call_json(operation, {"worker": address})
    workers_seen = first.call_json("RowtideClusterStatus", {})["workers"]
    assert {"address": address, "error": "no connection"} in workers_seen


def test_a_worker_opens_its_rows_for_no_other_cluster(workers: Workers) -> None:
    """Kafka came back without its logs, say: the same ids of shards would come to mean others."""
    first = workers.start(*LONG)
    repeat(partial(ask, first, create("kept")))
    ask(first, put("kept", key("a", 1), puts(n=1)))
    [up] = workers.running
    up.stop()
    ours = up.options
    up.options = [*ours, "--topic-prefix", "empty"]
    with pytest.raises(NotReady):
        up.start()
    assert "not of the cluster that Kafka holds" in (workers.folder / "output0").read_text()
    up.options = ours
    assert shown(read_row(workers.again(0), "kept", key("a", 1))) == {"n": 1}


async def test_a_worker_does_not_start_where_a_topic_could_lose_a_write(
    workers: Workers, broker: str
) -> None:
    """Another one created the topic of leases, whose entries are flushed now and then."""
    leases = NewTopic(
        f"{workers.folder.name}.lease", SLOTS, 1, topic_configs={"flush.messages": "1000"}
    )
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        await admin.create_topics([leases])
    finally:
        await admin.close()
    with pytest.raises(NotReady, match="ended with exit code 1"):
        await asyncio.to_thread(workers.start)
    output = (workers.folder / "output0").read_text()
    assert ".lease is not fsync" in output
    assert "flush.messages is 1000, must be 1" in output


def test_a_worker_does_not_start_on_a_shards_log_that_somebody_changed(
    workers: Workers, broker: str
) -> None:
    """Its entries are in the broker's memory alone now, where a power cut would find them."""
    client = workers.start(*LONG)
    repeat(partial(ask, client, create("kept")))
    ask(client, put("kept", key("a", 1), puts(n=1)))
    [shard] = client.call_json("RowtideListShards", {"table": "kept"})["shards"]
    log = f"{workers.folder.name}.shard.{shard['shard']}"
    workers.running[0].stop()
    asyncio.run(change(broker, log, "flush.messages", "1000"))
    with pytest.raises(NotReady, match="ended with exit code 1"):
        workers.again(0)
    assert f"{log} is not fsync: flush.messages is 1000" in (workers.folder / "output0").read_text()
    asyncio.run(change(broker, log, "flush.messages", "1"))
    assert shown(read_row(workers.again(0), "kept", key("a", 1))) == {"n": 1}


async def change(broker: str, topic: str, name: str, value: str) -> None:
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        await change_topic(cluster, topic, name, value)


@pytest.mark.parametrize("more", [-1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_worker_takes_the_number_of_slots_that_there_is(workers: Workers, more: int) -> None:
    workers.start(*LONG)
    workers.start(*LONG, "--slots", str(SLOTS + more))
    workers.wait_until_divided()
