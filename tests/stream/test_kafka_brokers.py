"""Which broker is believed if they report different things: one was cut off from the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rowtide.stream.log.kafka.brokers import UNKNOWN_TOPIC, Brokers
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.connection import Address, BrokerUnreachable
from rowtide.stream.log.kafka.errors import BrokerError
from rowtide.stream.log.kafka.metadata import Metadata, PartitionFound, TopicFound
from tests.support.waiting import SOON_S

LOG = ("log", 0)
HOSTS = {1: ("one", 9092), 2: ("two", 9092), 3: ("three", 9092)}
ONE, TWO, THREE = HOSTS.values()


class MadeBrokers(Brokers):
    """Brokers whose answers are made here: ``says`` has each one's leader and its term."""

    def __init__(self, hosts: dict[int, Address] | None = None) -> None:
        super().__init__(KafkaConfig("one:9092"))
        self.hosts = HOSTS if hosts is None else hosts
        self.says: dict[Address, tuple[int, int]] = dict.fromkeys(self.hosts.values(), (1, 5))
        self.topics = ["log"]
        self.silent: set[Address] = set()
        self.asked: list[Address] = []

    async def exchange(
        self,
        address: Address,
        question: Callable[[Any], Awaitable[Any]],
        within_s: float | None = None,
    ) -> Any:
        """Answer for a broker."""
        self.asked.append(address)
        if address in self.silent:
            self.suspect(address)
            raise TimeoutError
        leader, epoch = self.says[address]
        partitions = [PartitionFound(0, 0, leader, epoch, len(self.hosts))]
        if "log" not in self.topics:
            return Metadata(dict(self.hosts), [TopicFound(UNKNOWN_TOPIC, "log", [])])
        found = [TopicFound(0, topic, partitions) for topic in self.topics]
        return Metadata(dict(self.hosts), found)


async def look_up_leader(brokers: Brokers, times: int) -> Address:
    """Look the log's leader up so often; return it."""
    for _ in range(times):
        await brokers.metadata(["log"])
    return await brokers.leader(*LOG)


async def test_brokers_are_asked_in_turn() -> None:
    brokers = MadeBrokers()
    await look_up_leader(brokers, 6)
    assert brokers.asked == [ONE, TWO, THREE] * 2


async def test_what_an_older_term_says_is_not_believed_whoever_is_asked() -> None:
    brokers = MadeBrokers()
    brokers.says |= {TWO: (2, 6), THREE: (2, 6)}
    assert await look_up_leader(brokers, 1) == ONE, "nothing else is known"
    for _ in range(6):
        assert await look_up_leader(brokers, 1) == TWO
    assert brokers.epochs[LOG] == 6


async def test_who_was_found_to_be_no_leader_is_not_taken_again_from_who_knows_no_better() -> None:
    brokers = MadeBrokers()
    brokers.says |= {TWO: (2, 6), THREE: (2, 6)}
    await look_up_leader(brokers, 2)
    brokers.forget_leader(*LOG)
    brokers.silent = {TWO, THREE}
    await brokers.metadata(["log"])
    assert brokers.asked[-1] == ONE
    assert LOG not in brokers._leaders


async def test_a_leader_that_who_was_asked_last_does_not_know_is_asked_for_again() -> None:
    """One that is cut off does not know a broker which came back since."""
    brokers = MadeBrokers()
    brokers.says = dict.fromkeys(HOSTS.values(), (3, 6))
    assert await look_up_leader(brokers, 1) == THREE
    brokers.says[TWO] = (1, 5)
    brokers.hosts = {1: ONE, 2: TWO}
    brokers.silent = {ONE}
    for _ in range(3):
        with pytest.raises(BrokerError):
            await look_up_leader(brokers, 1)
    brokers.hosts, brokers.silent = HOSTS, set()
    brokers.says[TWO] = (3, 6)
    assert await look_up_leader(brokers, 1) == THREE


async def test_who_did_not_answer_is_asked_last() -> None:
    brokers = MadeBrokers()
    await look_up_leader(brokers, 1)
    brokers.suspect(TWO)
    await look_up_leader(brokers, 4)
    assert brokers.asked == [ONE, THREE, ONE, THREE, ONE]
    brokers.silent = {ONE, THREE}
    await look_up_leader(brokers, 1)
    assert brokers.asked[-1] == TWO


async def test_where_none_answers_in_time_that_is_told() -> None:
    """A timeout has no text of its own: the sentence ended before its reason."""
    brokers = MadeBrokers()
    brokers.silent = {*HOSTS.values()}
    with pytest.raises(BrokerUnreachable, match="no broker of one:9092 answers: no answer in time"):
        await brokers._first_answer(lambda _channel: asyncio.sleep(0))


async def test_a_broker_that_takes_a_connection_and_says_nothing_is_told_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: Address = listener.getsockname()
        brokers = Brokers(KafkaConfig("one:9092", request_s=0.05))
        with pytest.raises(BrokerUnreachable, match=f"broker 127.0.0.1:{address[1]}: TimeoutError"):
            await brokers.exchange(address, lambda _channel: asyncio.sleep(0), within_s=5)


async def test_what_waits_for_a_leader_learns_that_there_is_a_later_one() -> None:
    brokers = MadeBrokers()
    await look_up_leader(brokers, 1)
    left: list[str] = []
    with brokers.while_led([LOG], lambda: left.append("the first")):
        await look_up_leader(brokers, 3)
        assert left == [], "the same term as before"
        brokers.says |= {TWO: (2, 6)}
        await look_up_leader(brokers, 3)
    with brokers.while_led([LOG], lambda: left.append("another")):
        await look_up_leader(brokers, 3)
    assert left == ["the first"]


async def test_a_topic_that_was_deleted_may_begin_anew() -> None:
    brokers = MadeBrokers()
    brokers.says = dict.fromkeys(HOSTS.values(), (1, 9))
    await look_up_leader(brokers, 1)
    brokers.forget_topics(["log"])
    brokers.says = dict.fromkeys(HOSTS.values(), (2, 0))
    assert await look_up_leader(brokers, 1) == TWO


async def test_a_topic_that_another_worker_deleted_is_forgotten_and_may_begin_anew() -> None:
    brokers = MadeBrokers()
    await look_up_leader(brokers, 1)
    brokers.topics = []
    await brokers.metadata(["log"])
    assert brokers.find_known_leader(*LOG) is None
    assert brokers.epochs == {}
    brokers.topics = ["log"]
    brokers.says = dict.fromkeys(HOSTS.values(), (2, 0))
    assert await look_up_leader(brokers, 1) == TWO


async def test_who_asks_for_all_topics_learns_nothing_of_others() -> None:
    brokers = MadeBrokers()
    brokers.topics = ["log", "a topic of others"]
    found = await brokers.metadata(None)
    assert [one.name for one in found] == brokers.topics
    assert brokers.count == 3
    assert brokers.epochs == {}
    assert brokers.find_known_leader(*LOG) is None


async def test_the_only_broker_is_believed_also_where_it_lost_its_disk() -> None:
    brokers = MadeBrokers({1: ONE})
    assert await look_up_leader(brokers, 1) == ONE
    brokers.says = {ONE: (1, 0)}
    await look_up_leader(brokers, 1)
    assert brokers.epochs[LOG] == 0


async def test_one_of_several_brokers_is_asked_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowtide.stream.log.kafka.brokers.WATCH_S", 0.0)
    brokers = MadeBrokers()
    await look_up_leader(brokers, 1)
    brokers.says |= {THREE: (3, 7)}
    moved = asyncio.Event()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(brokers.watch())
        with brokers.while_led([LOG], moved.set):
            await moved.wait()
        watching.cancel()
    assert await brokers.leader(*LOG) == THREE
