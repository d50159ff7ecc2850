"""Who is in each conversation: one row for a conversation and a user.

The fan-out reads this table. A user's own list of conversations are the cursors (``cursors.py``),
which a reader needs. ``join`` and ``leave`` change both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from rowtide.client.async_client import AsyncClient
from rowtide.client.row_values import RowDict
from rowtide.client.timeline.cursors import CONVERSATION, USER, Cursors
from rowtide.client.timeline.inbox_schema import RESERVED, SHARED_MARK, check_user
from rowtide.client.timeline.schema import TimelineIdentifier

__all__ = ["Members"]


class Members:
    """The members of all conversations, in a table of their own."""

    def __init__(self, client: AsyncClient, cursors: Cursors, table: str = "im_members") -> None:
        self._client = client
        self._cursors = cursors
        self.table = table
        self._key = TimelineIdentifier.of((CONVERSATION, USER))

    async def create(self, *, if_missing: bool = False) -> bool:
        """Create the table; return True if it was created."""
        return await self._client.create_table(
            self.table, {CONVERSATION: str, USER: str}, if_missing=if_missing
        )

    async def join(self, conversation: str, user: str, *, read_id: int = 0) -> bool:
        """Add a user to a conversation; return False if the user has it already.

        The user gets each message that is stored after this call. If the call fails, repeat it.
        """
        row = self._row_key(conversation, user)
        is_new = await self._cursors.join(user, conversation, read_id=read_id)
        await self._client.put(self.table, row)
        return is_new

    async def leave(self, conversation: str, user: str) -> None:
        """Remove a user from a conversation. What is in the user's inbox stays there.

        If the call fails, repeat it.
        """
        await self._client.delete(self.table, self._row_key(conversation, user))
        await self._cursors.leave(user, conversation)

    async def of(self, conversation: str) -> AsyncIterator[str]:
        """Yield the members of a conversation in the order of their names."""
        prefix = {CONVERSATION: self._row_key(conversation, "any")[CONVERSATION]}
        async for row in self._client.range(self.table, prefix=prefix):
            user = str(row[USER])
            if not user.startswith(RESERVED):
                yield user

    async def find_shared(self, conversations: Collection[str]) -> Sequence[str]:
        """Return those conversations whose members share an inbox."""
        names = list(conversations)
        keys = [{CONVERSATION: name, USER: SHARED_MARK} for name in names]
        rows = await self._client.get_many(self.table, keys)
        return [name for name, row in zip(names, rows, strict=True) if row is not None]

    async def mark_shared(self, conversation: str) -> None:
        """Note that the members of a conversation share an inbox from now on."""
        await self._client.put(self.table, {CONVERSATION: conversation, USER: SHARED_MARK})

    def _row_key(self, conversation: str, user: str) -> RowDict:
        check_user(user)
        return self._key.row((conversation, user), self._client.limits)
