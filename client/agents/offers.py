"""Batches on their way from the readers of shards to the actors of a Faust agent.

A reader offers a batch and waits until an actor has acknowledged it. While Faust moves the
partitions of its tables, the offers are closed: no actor gets a batch, and readers give their
shards back. An actor has one batch at a time. This module knows asyncio, but not Faust.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.worker import Batch
from rowtide.core.records.change import Change
from rowtide.core.values.key_ranges import Range

__all__ = ["AgentBatch", "Offers"]


@dataclass(slots=True)
class _Offer:
    """A batch that a reader waits to have acknowledged."""

    batch: Batch
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_acknowledged: bool = False


class AgentBatch:
    """Changes of one shard; iterate it to get them.

    The batch comes again until ``acknowledge`` has returned.
    """

    __slots__ = ("_acknowledge", "_batch")

    def __init__(self, batch: Batch, acknowledge: Callable[[], Awaitable[None]]) -> None:
        self._batch = batch
        self._acknowledge = acknowledge

    def __iter__(self) -> Iterator[Change]:
        return iter(self._batch)

    def __len__(self) -> int:
        return len(self._batch)

    def __repr__(self) -> str:
        return f"<{len(self)} changes of {self.table}, shard {self.shard_id}>"

    @property
    def table(self) -> str:
        """The name of the table."""
        return self._batch.table

    @property
    def shard_id(self) -> str:
        """The shard of all of its changes."""
        return self._batch.shard_id

    @property
    def changes(self) -> Sequence[Change]:
        """The changes in commit order."""
        return self._batch.changes

    @property
    def covers(self) -> Range | None:
        """The range of encoded keys of a page of rows, see ``Batch``."""
        return self._batch.covers

    @property
    def stamp(self) -> int:
        """The commit stamp of a page of rows, see ``Batch``."""
        return self._batch.stamp

    async def acknowledge(self) -> None:
        """Wait until Kafka has all that the app has sent, then finish the batch.

        Raises ``NotDelivered`` if Kafka refused a record; then the app ends, and the batch comes
        again. If the shard was taken from this worker meanwhile, the batch comes again, too.
        """
        await self._acknowledge()


class Offers:
    """The batches that wait, and those that actors have.

    ``settle`` returns when all that the actors have sent is durable. ``may_take`` is False while
    no actor may get a batch, even if the offers are open.
    """

    def __init__(
        self, settle: Callable[[], Awaitable[None]], may_take: Callable[[], bool] = lambda: True
    ) -> None:
        self._settle = settle
        self._may_take = may_take
        self._owns: Callable[[str], bool] | None = None
        """Which shards this worker may read; None while the offers are closed."""
        self._waiting: list[_Offer] = []
        self._taken: dict[asyncio.Task[Any], _Offer] = {}
        """The batch of each actor. A task that has ended was an actor that failed."""
        self._changed = asyncio.Event()
        self._has_ended = False

    @property
    def is_open(self) -> bool:
        """True while batches are handed out."""
        return self._owns is not None

    def owns(self, shard_id: str) -> bool:
        """True if this worker may read a shard now."""
        return self._owns is not None and self._may_take() and self._owns(shard_id)

    @property
    def taken_shards(self) -> list[str]:
        """Return the shards of which an actor has a batch."""
        return [offer.batch.shard_id for offer in self._taken.values()]

    def open(self, owns: Callable[[str], bool]) -> None:
        """Hand out batches of the shards for which ``owns`` is True."""
        self._owns = owns
        self._changed.set()

    def close(self) -> None:
        """Hand out nothing more. Batches that no actor has go back to their readers."""
        self._owns = None
        self._withdraw(self._waiting)
        self._waiting.clear()

    def end(self) -> None:
        """Let every actor finish: ``take`` raises StopAsyncIteration from now on."""
        self._has_ended = True
        self._changed.set()

    async def drain(self) -> None:
        """Return when no actor works on a batch and everything sent is durable.

        The offers must be closed. A batch of an actor that failed goes back to its reader.
        """
        while any(not actor.done() for actor in self._taken):
            await self._wait()
        self._withdraw(self._taken.values())
        self._taken.clear()
        await self._settle()

    async def give(self, batch: Batch) -> None:
        """Offer a batch; return when it is acknowledged. Raises ``Unfinished`` if it is not."""
        if not self.owns(batch.shard_id):
            raise Unfinished
        offer = _Offer(batch)
        self._waiting.append(offer)
        self._changed.set()
        try:
            await offer.ended.wait()
        finally:
            offer.ended.set()
            if offer in self._waiting:
                self._waiting.remove(offer)
        if not offer.is_acknowledged:
            raise Unfinished

    async def take(self) -> AgentBatch:
        """Return the next batch for the actor that calls.

        Raises RuntimeError if the actor has not acknowledged its last batch, and StopAsyncIteration
        once the offers have ended.
        """
        actor = asyncio.current_task()
        assert actor is not None, "an actor is a task"
        if actor in self._taken:
            batch = self._taken[actor].batch
            raise RuntimeError(
                f"A batch of {batch.table}, shard {batch.shard_id}, was not acknowledged. Await "
                f"its acknowledge() before the next batch."
            )
        while True:
            if self._has_ended:
                raise StopAsyncIteration
            self._offer_again()
            if self._waiting and self.owns(self._waiting[0].batch.shard_id):
                break
            await self._wait()
        offer = self._taken[actor] = self._waiting.pop(0)
        actor.add_done_callback(lambda _: self._changed.set())
        return AgentBatch(offer.batch, lambda: self._acknowledge(actor, offer))

    async def _acknowledge(self, actor: asyncio.Task[Any], offer: _Offer) -> None:
        await self._settle()
        if self._taken.get(actor) is offer:
            del self._taken[actor]
            offer.is_acknowledged = True
            offer.ended.set()
            self._changed.set()

    def _offer_again(self) -> None:
        """Offer the batches of actors that failed."""
        for actor in [actor for actor in self._taken if actor.done()]:
            offer = self._taken.pop(actor)
            if not offer.ended.is_set():
                self._waiting.insert(0, offer)

    def _withdraw(self, offers: Iterable[_Offer]) -> None:
        for offer in offers:
            offer.ended.set()
        self._changed.set()

    async def _wait(self) -> None:
        """Return when something may have changed."""
        self._changed.clear()
        await self._changed.wait()
