"""How far each user has read each conversation: one row for a user and a conversation.

A cursor only moves forward, by a conditional update, so devices that report late or twice do no
harm. The row also says that the user takes part in the conversation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from rowtide.client.async_client import AsyncClient
from rowtide.client.failures import ConditionFailed
from rowtide.client.predicates import column
from rowtide.client.row_values import RowDict
from rowtide.client.timeline.change_watch import ChangeWatch, Outage
from rowtide.client.timeline.schema import TimelineIdentifier
from rowtide.core.values.errors import OutcomeUnknown, Unavailable, invalid

__all__ = ["Cursors", "ReadCursor"]

USER, CONVERSATION, READ_ID = "user", "conversation", "read_id"


class ReadCursor(NamedTuple):
    """The id up to which a user has read a conversation; 0 before the first message."""

    conversation: str
    read_id: int


class Cursors:
    """The cursors of all users, in a table of their own."""

    def __init__(
        self, client: AsyncClient, table: str = "im_cursors", *, stream_hours: int = 24
    ) -> None:
        self._client = client
        self.table = table
        self._stream_hours = stream_hours
        self._key = TimelineIdentifier.of((USER, CONVERSATION))

    async def create(self, *, if_missing: bool = False) -> bool:
        """Create the table; return True if it was created."""
        return await self._client.create_table(
            self.table,
            {USER: str, CONVERSATION: str},
            stream_hours=self._stream_hours,
            if_missing=if_missing,
        )

    async def join(self, user: str, conversation: str, *, read_id: int = 0) -> bool:
        """Add a conversation to a user's; return False if the user has it already."""
        row = self._row(user, conversation, read_id)
        try:
            await self._client.put(self.table, row, expect="absent")
        except ConditionFailed:
            return False
        return True

    async def leave(self, user: str, conversation: str) -> None:
        """Remove a conversation from a user's."""
        await self._client.delete(self.table, self._row_key(user, conversation))

    async def read(self, user: str, conversation: str, read_id: int) -> int:
        """Move a cursor forward to an id; return where it is now, which may be further."""
        row = self._row(user, conversation, read_id)
        is_forward = column(READ_ID, or_missing=True) < read_id
        try:
            await self._client.update(self.table, row, condition=is_forward)
        except ConditionFailed:
            return await self.get(user, conversation)
        return read_id

    async def get(self, user: str, conversation: str) -> int:
        """Return the id up to which a user has read a conversation; 0 without a cursor."""
        row = await self._client.get(self.table, self._row_key(user, conversation))
        return 0 if row is None else _cursor(row).read_id

    async def of(self, user: str) -> list[ReadCursor]:
        """Return the cursors of a user, in the order of the conversations' names."""
        prefix = {USER: self._row_key(user, "any")[USER]}
        return [_cursor(row) async for row in self._client.range(self.table, prefix=prefix)]

    async def follow(self, user: str) -> AsyncIterator[ReadCursor]:
        """Yield the cursors of a user, then each one that moves. It does not end."""
        prefix = {USER: self._row_key(user, "any")[USER]}
        watch = ChangeWatch(self._client, self.table, [prefix])
        outage = Outage()
        known: dict[str, int] = {}
        while True:
            try:
                await watch.begin()
                found = await self.of(user)
                outage.end()
                for cursor in found:
                    if known.get(cursor.conversation) != cursor.read_id:
                        yield cursor
                known = dict(found)
                await watch.wait()
            except (Unavailable, OutcomeUnknown) as failure:
                watch.drop()
                await outage.pause(failure)

    def _row_key(self, user: str, conversation: str) -> RowDict:
        return self._key.row((user, conversation), self._client.limits)

    def _row(self, user: str, conversation: str, read_id: int) -> RowDict:
        if isinstance(read_id, bool) or not isinstance(read_id, int) or not 0 <= read_id < 2**63:
            raise invalid(f"read_id takes an id of a message or 0, not {read_id!r}.")
        return self._row_key(user, conversation) | {READ_ID: read_id}


def _cursor(row: RowDict) -> ReadCursor:
    read_id = row.get(READ_ID, 0)
    if not isinstance(read_id, int):
        raise invalid(f"'{READ_ID}' of a cursor is an integer, not {read_id!r}.")
    return ReadCursor(str(row[CONVERSATION]), read_id)
