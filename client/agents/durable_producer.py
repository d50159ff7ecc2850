"""Faust's producer, with a flush that returns only when Kafka has everything.

Faust's own flush stops waiting when nothing has left its buffer for 0.1 seconds, and does not
report what Kafka refuses. So a changelog could lack changes whose position was committed already.

The producer also notices another worker's records in the changelogs of this worker's partitions. It
knows the offset at which its own next record must be. And it holds records back once this worker
may have lost the shard that they count, for example because the machine was suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError
from aiokafka.protocol.produce import ProduceRequest
from faust.transport.drivers import aiokafka as driver

__all__ = ["DurableProducer", "ForeignRecords", "NotDelivered", "TopicPartition"]

TopicPartition = tuple[str, int]
"""A topic and a partition."""

CHECK_S = 1.0
"""How often ``settle`` looks whether the task that sends has failed."""


class NotDelivered(Exception):
    """Kafka does not have a record that the app has sent. The app's tables are ahead of it."""


class ForeignRecords(Exception):
    """Another worker wrote to a changelog after this worker had recovered its table."""


class NotSent(KafkaError):  # type: ignore[misc]
    """A request was held back: this worker may have lost the shard that it counts."""

    retriable = False


class DurableProducer(driver.Producer):  # type: ignore[misc]
    """A producer that knows which records Kafka has not answered yet.

    A record that Kafka refused is never forgotten: every later ``settle`` raises.
    """

    _ends: dict[TopicPartition, int]
    """The offset of the next record of each changelog of this worker, as far as we know."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._unanswered: set[asyncio.Future[Any]] = set()
        self._failure: BaseException | None = None
        self._ends = {}
        self._guards: list[Callable[[], bool]] = []

    def _settings_extra(self) -> dict[str, Any]:
        # A retry must not put an older value of a key behind a newer one.
        return {"acks": "all", "enable_idempotence": True}

    def send_soon(self, fut: Any) -> None:
        """Send a record of a table's changelog soon."""
        self._follow(fut)
        super().send_soon(fut)

    async def send(self, *args: Any, **options: Any) -> Awaitable[Any]:
        """Send a record; return the future of Kafka's answer."""
        answer: asyncio.Future[Any] = await super().send(*args, **options)
        self._follow(answer)
        answer.add_done_callback(self._note_offset)
        return answer

    def watch(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take over changelogs that were recovered up to these offsets. Forget all others."""
        self._ends = {place: max(end, self._ends.get(place, 0)) for place, end in ends.items()}

    def guard(self, may_send: Callable[[], bool]) -> None:
        """Send nothing more once ``may_send`` was False. It is called before each request."""
        self._guards.append(may_send)

    async def on_start(self) -> None:
        """Start, and put the guards between aiokafka and its connections."""
        await super().on_start()
        client = self._producer.client
        client.send = partial(self._send_guarded, client.send)

    async def _send_guarded(
        self, send: Callable[..., Awaitable[Any]], node: int, request: Any, **options: Any
    ) -> Any:
        if isinstance(request, ProduceRequest):
            if not all(may_send() for may_send in self._guards):
                self._failure = self._failure or NotSent(
                    "this worker was suspended or did not reach rowtide, and the lease of a shard "
                    "ended while the agent had a batch of it"
                )
            if self._failure is not None:
                raise NotSent(str(self._failure))
        return await send(node, request, **options)

    async def require_untouched(self, place: TopicPartition, end: int) -> None:
        """Raise ``ForeignRecords`` if a changelog that ends at ``end`` has another's records."""
        await self.settle()
        known = self._ends.get(place, end)
        if end > known:
            raise foreign_records(place, known, end)

    def _follow(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered.add(answer)
        answer.add_done_callback(self._note_answer)

    def _note_answer(self, answer: asyncio.Future[Any]) -> None:
        self._unanswered.discard(answer)
        if answer.cancelled():
            self._failure = self._failure or asyncio.CancelledError()
        else:
            self._failure = self._failure or answer.exception()

    def _note_offset(self, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        sent = answer.result()
        place = (sent.topic, sent.partition)
        known = self._ends.get(place)
        if known is not None and sent.offset != known:
            self._failure = self._failure or foreign_records(place, known, sent.offset)
        elif known is not None:
            self._ends[place] = known + 1

    async def settle(self) -> None:
        """Return when Kafka has everything sent before the call. Raises ``NotDelivered``."""
        pending = set(self._unanswered)
        while pending and self._failure is None:
            _, pending = await asyncio.wait(pending, timeout=CHECK_S)
            if pending and self.buffer.crashed:
                self._failure = self.buffer.crash_reason
        if isinstance(self._failure, NotDelivered):
            raise self._failure  # The task that sends has crashed with it.
        if self._failure is not None:
            raise NotDelivered(
                f"The app's tables and their changelogs differ: {self._failure}. Start the worker "
                f"again; it recovers its tables from Kafka."
            ) from self._failure

    async def flush(self) -> None:
        """Return when Kafka has everything. Raises ``NotDelivered``."""
        await self.settle()
        await super().flush()


def foreign_records(place: TopicPartition, known: int, found: int) -> ForeignRecords:
    """Return the error for a changelog where another worker's records follow ours."""
    return ForeignRecords(
        f"topic {place[0]}, partition {place[1]} goes on at offset {found}, and this worker knows "
        f"it up to {known}: another worker wrote to it"
    )
