"""How batches pass between the readers of shards and the actors of an agent."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.client.agents.offers import Offers
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.worker import Batch
from tests.support.waiting import SOON_S

TURNS = 20


class Kafka:
    """What the actors have sent is durable once ``answers`` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.failure: Exception | None = None

    async def settle(self) -> None:
        await self.answers.wait()
        if self.failure is not None:
            raise self.failure


@pytest.fixture
async def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def offers(kafka: Kafka) -> Offers:
    """Open offers of all shards."""
    offers = Offers(kafka.settle)
    offers.open(lambda _: True)
    return offers


def batch(shard: str) -> Batch:
    return Batch("t", shard, ())


async def turns() -> None:
    """Let every task go on as far as it can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def acknowledge_one(offers: Offers) -> str:
    """Be an actor for one batch; return its shard."""
    taken = await offers.take()
    await taken.acknowledge()
    return taken.shard_id


async def test_a_batch_is_finished_when_it_is_acknowledged(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        taken = await offers.take()
        await turns()
        assert not reader.done()
        await taken.acknowledge()
        await reader


async def test_an_acknowledgement_waits_for_kafka(offers: Offers, kafka: Kafka) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        kafka.answers.clear()
        actor = tasks.create_task(acknowledge_one(offers))
        await turns()
        assert not reader.done()
        kafka.answers.set()
        await actor
        await reader


async def test_what_kafka_refuses_is_not_acknowledged(offers: Offers, kafka: Kafka) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        kafka.failure = ConnectionError("refused")
        taken = await offers.take()
        with pytest.raises(ConnectionError, match="refused"):
            await taken.acknowledge()
        await turns()
        assert not reader.done()
        reader.cancel()


async def test_an_actor_that_forgets_to_acknowledge_is_reminded(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        await offers.take()
        with pytest.raises(RuntimeError, match="A batch of t, shard a, was not acknowledged"):
            await offers.take()
        reader.cancel()


async def test_actors_have_a_batch_each(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(offers.give(batch(shard))) for shard in "abc"]
        actors = [tasks.create_task(acknowledge_one(offers)) for _ in readers]
        await asyncio.wait([*readers, *actors])
        assert sorted(actor.result() for actor in actors) == ["a", "b", "c"]


async def test_the_batch_of_an_actor_that_fails_comes_again(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        actor = tasks.create_task(take_and_hang(offers))
        await turns()
        actor.cancel()
        await turns()
        assert not reader.done()
        assert await acknowledge_one(offers) == "a"
        await reader


async def test_closed_offers_give_waiting_batches_back(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(returned(offers, "a"))
        await turns()
        offers.close()
        await reader
        await returned(offers, "b")
        assert not offers.owns("a")


async def returned(offers: Offers, shard: str) -> None:
    """Offer a batch that is given back."""
    with pytest.raises(Unfinished):
        await offers.give(batch(shard))


async def test_closed_offers_wait_for_the_batch_in_hand(offers: Offers, kafka: Kafka) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        taken = await offers.take()
        offers.close()
        draining = tasks.create_task(offers.drain())
        await turns()
        assert not draining.done()
        await taken.acknowledge()
        await draining
        await reader


async def test_closed_offers_do_not_wait_for_an_actor_that_failed(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(returned(offers, "a"))
        actor = tasks.create_task(take_and_hang(offers))
        await turns()
        offers.close()
        draining = tasks.create_task(offers.drain())
        await turns()
        assert not draining.done()
        actor.cancel()
        await draining
        await reader


async def take_and_hang(offers: Offers) -> None:
    await offers.take()
    await asyncio.Event().wait()


async def test_opened_offers_pass_on_only_what_is_owned(offers: Offers) -> None:
    offers.close()
    offers.open(lambda shard: shard == "a")
    await returned(offers, "b")
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        assert await acknowledge_one(offers) == "a"
        await reader


async def test_a_reader_that_lost_its_lease_takes_its_batch_along(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        lost = tasks.create_task(offers.give(batch("a")))
        await turns()
        lost.cancel()
        await turns()
        reader = tasks.create_task(offers.give(batch("b")))
        assert await acknowledge_one(offers) == "b"
        await reader


async def test_an_acknowledgement_of_a_lost_batch_finishes_no_other(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        lost = tasks.create_task(offers.give(batch("a")))
        taken = await offers.take()
        lost.cancel()
        reader = tasks.create_task(offers.give(batch("a")))
        await turns()
        await taken.acknowledge()
        await turns()
        assert not reader.done()
        assert await acknowledge_one(offers) == "a"
        await reader


async def test_actors_finish_when_the_offers_end(offers: Offers) -> None:
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(offers.give(batch("a")))
        assert await acknowledge_one(offers) == "a"
        await reader
        offers.end()
        with pytest.raises(StopAsyncIteration):
            await offers.take()
