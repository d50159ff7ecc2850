"""Reads who is in a conversation: the rows of the table of members that begin with it.

A read begins after its caller has read the message. It sees every member who was added before the
message was stored, because the server's reads see every write that was answered before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from rowtide.client.endpoint import Endpoint
from rowtide.client.timeline.inbox_schema import RESERVED, SHARED_MARK, name_shared_inbox
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import first_failure
from rowtide.core.values.variant import V_INF_MAX, V_INF_MIN

__all__ = ["MemberTable"]

READS_AT_ONCE = 16


class MemberTable:
    """The table of members. ``conversation`` and ``user`` are its key columns.

    A conversation with more than ``copies_max`` members has a shared inbox.
    """

    def __init__(
        self, endpoint: Endpoint, name: str, conversation: str, user: str, *, copies_max: int
    ) -> None:
        self._endpoint = endpoint
        self._name = name
        self._conversation = conversation.encode()
        self._user = user.encode()
        self._copies_max = copies_max
        self._marked: set[str] = set()
        """Conversations whose mark is durable."""

    async def users(self, conversations: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Return the inboxes that get the messages of each conversation. Raises ``StoreError``."""
        at_once = asyncio.Semaphore(READS_AT_ONCE)

        async def read(conversation: str) -> Sequence[str]:
            async with at_once:
                return await self._users_of(conversation)

        try:
            async with asyncio.TaskGroup() as tasks:
                reads = {
                    name: tasks.create_task(read(name), name=f"members of {name}")
                    for name in conversations
                }
        except BaseExceptionGroup as group:
            raise first_failure(group) from group
        return {name: task.result() for name, task in reads.items()}

    async def _users_of(self, conversation: str) -> Sequence[str]:
        found = await self._read(conversation)
        users = [user for user in found if not user.startswith(RESERVED)]
        if len(users) <= self._copies_max:
            return users
        if SHARED_MARK in found:
            self._marked.add(conversation)
        if conversation not in self._marked:
            # Readers look for the mark, so it must be durable before the first shared row.
            await self._mark(conversation)
            self._marked.add(conversation)
        return [name_shared_inbox(conversation)]

    async def _read(self, conversation: str) -> list[str]:
        """Return the users in the table, the mark included, one above the limit at most."""
        request = self._request(conversation)
        left = self._copies_max + 2
        found: list[str] = []
        while left > 0:
            request.limit = left
            response = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            rows = plainbuffer.decode_rows(response.rows)
            found += [str(variant.decode(row.key[1][1])) for row in rows]
            left -= len(rows)
            if not response.next_start_primary_key:
                break
            request.inclusive_start_primary_key = response.next_start_primary_key
        return found

    def _request(self, conversation: str) -> pb.GetRangeRequest:
        """Return a read of whole rows: the server answers them as stored, at a tenth of the cost
        of chosen columns. They are small, mostly only a key.
        """
        first = (self._conversation, variant.encode(conversation))
        low, high = [first, (self._user, V_INF_MIN)], [first, (self._user, V_INF_MAX)]
        return pb.GetRangeRequest(
            table_name=self._name,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(low, []),
            exclusive_end_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(high, []),
        )

    async def _mark(self, conversation: str) -> None:
        key = [
            (self._conversation, variant.encode(conversation)),
            (self._user, variant.encode(SHARED_MARK)),
        ]
        cell = plainbuffer.put_cell(b"copies_max", variant.encode(self._copies_max), None)
        request = pb.PutRowRequest(
            table_name=self._name,
            row=plainbuffer.HEADER + plainbuffer.encode_row(key, [cell]),
            condition=pb.Condition(row_existence=pb.IGNORE),
        )
        await self._endpoint.call("PutRow", request, pb.PutRowResponse)
