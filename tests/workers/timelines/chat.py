"""The tables of a chat as one process sees them, and connections that lose answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from rowtide.client import (
    AsyncClient,
    BatchFailed,
    Conversations,
    Cursors,
    Inboxes,
    Members,
    PutRow,
    Timelines,
    TimelineSchema,
    inbox_schema,
)
from rowtide.client.http_exchange import HttpAnswer
from rowtide.core.protocol.operations import PUT_ONCE
from rowtide.core.values.errors import OutcomeUnknown, Unavailable

__all__ = ["INBOX", "MEMBERS", "STORE", "Chat", "LostAnswers", "repeat"]

STORE, MEMBERS, CURSORS, INBOX = "im_store", "im_members", "im_cursors", "im_sync"

REPEAT_S_MAX = 120.0
"""Longer than a killed worker takes to start again and to take its slots back."""

Result = TypeVar("Result")


class Chat:
    """The tables of a chat, reached through one worker."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.store = Timelines(client, TimelineSchema(STORE))
        self.sync = Timelines(client, inbox_schema(INBOX))
        self.cursors = Cursors(client, CURSORS)
        self.members = Members(client, self.cursors, MEMBERS)
        self.inboxes = Inboxes(self.store, self.sync, self.members, self.cursors)
        self.conversations = Conversations(self.store, self.cursors)

    async def create(self, groups: Mapping[str, Sequence[str]]) -> None:
        """Create the tables, and add the members to their conversations."""
        for table in (self.store, self.sync, self.cursors, self.members):
            await table.create()
        pairs = [(name, user) for name, users in groups.items() for user in users]
        rows = [PutRow(MEMBERS, {"conversation": name, "user": user}) for name, user in pairs]
        rows += [
            PutRow(CURSORS, {"user": user, "conversation": name, "read_id": 0})
            for name, user in pairs
        ]
        left = iter(rows)
        while some := list(islice(left, self.client.limits.batch_write_rows_max)):
            await repeat(lambda some=some: self.client.write(some))  # type: ignore[misc]


async def repeat(attempt: Callable[[], Awaitable[Result]]) -> Result:
    """Return what an attempt returns; repeat it while workers die. A repeat must do no harm."""
    async with asyncio.timeout(REPEAT_S_MAX):
        while True:
            try:
                return await attempt()
            except (Unavailable, OutcomeUnknown):
                pass
            except BatchFailed as failure:
                if not all(_is_repeatable(outcome.failure) for outcome in failure.outcomes):
                    raise
            await asyncio.sleep(0.05)


def _is_repeatable(failure: Exception | None) -> bool:
    return failure is None or isinstance(failure, Unavailable | OutcomeUnknown)


class LostAnswers:
    """Loses a share of the answers to the writes of ``clients``; ``count`` is how many."""

    OPERATIONS = (PUT_ONCE, "DeleteRow")

    def __init__(
        self, clients: Iterable[AsyncClient], chance: random.Random, *, share: float
    ) -> None:
        self.count = 0
        self._chance = chance
        self._share = share
        for client in clients:
            self._lose_answers_of(client)

    def _lose_answers_of(self, client: AsyncClient) -> None:
        endpoint = client.endpoint
        exchange = endpoint.exchange

        async def exchange_or_lose(operation: str, body: bytes, more: Any = None) -> HttpAnswer:
            answer = await exchange(operation, body, more)
            if operation in self.OPERATIONS and self._chance.random() < self._share:
                self.count += 1
                raise OutcomeUnknown("The answer was lost.")
            return answer

        endpoint.exchange = exchange_or_lose  # type: ignore[method-assign]
