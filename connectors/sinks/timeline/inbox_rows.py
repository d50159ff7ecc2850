"""The inbox rows of a message, and their positions.

A position is the message's commit stamp, then the user. It rises from row to row. It is the same
whenever the message is fanned out again, also by another process or with other members. So a shard
of the sync table skips each row that it has (``core/shard/source_batch.py``), and no message is
twice in an inbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rowtide.client.timeline.inbox_schema import inbox_columns
from rowtide.connectors.rows import ASSIGNED, SinkRow, SourceRow
from rowtide.core.values.variant import Scalar

__all__ = ["InboxTable", "StoredMessage", "message_of", "position_of", "rows_at_once", "stamp_of"]

USER_BYTES_MAX = 900
"""Longest user in a position, which has 1024 bytes at most. Of a longer one it has a digest."""

ROWS_AT_ONCE = 8000
"""Rows that are made and written together. A message has a few more at most."""


class StoredMessage(NamedTuple):
    """A stored message as an inbox refers to it, and its row in the sink's batch."""

    conversation: str
    id: int
    columns: Mapping[str, Scalar]
    row: SinkRow


class InboxTable(NamedTuple):
    """The sync table, and its key columns: the user and the id."""

    name: str
    user: str
    sequence: str

    def rows(self, message: StoredMessage, users: Sequence[str]) -> list[SourceRow]:
        """Return a message's rows for users, in the order of their positions."""
        stamp, columns = message.row.stamp, message.columns
        sequence = (self.sequence, ASSIGNED)
        rows = [
            SourceRow(
                self.name,
                ((self.user, user), sequence),
                columns,
                True,
                0,
                position_of(stamp, user),
            )
            for user in users
        ]
        rows.sort(key=_position)
        return rows


def message_of(row: SinkRow, sender: str) -> StoredMessage:
    """Return the message of a row of the store table. ``sender`` is the field with who sent it."""
    (_, conversation), (_, id) = row.key
    assert isinstance(conversation, str), "by the table's key"
    assert isinstance(id, int), "by the table's key"
    columns = inbox_columns(conversation, id, (row.columns or {}).get(sender))
    return StoredMessage(conversation, id, columns, row)


def rows_at_once(
    table: InboxTable, messages: Sequence[StoredMessage], users: Mapping[str, Sequence[str]]
) -> Iterator[list[SourceRow]]:
    """Yield the rows of messages in order, in parts of whole messages.

    ``users`` has the inboxes of each conversation.
    """
    rows: list[SourceRow] = []
    for message in messages:
        rows += table.rows(message, users[message.conversation])
        if len(rows) >= ROWS_AT_ONCE:
            yield rows
            rows = []
    if rows:
        yield rows


def position_of(stamp: int, user: str) -> bytes:
    """Return the position of a message's row for a user."""
    encoded = user.encode()
    if len(encoded) > USER_BYTES_MAX:
        encoded = encoded[:USER_BYTES_MAX] + hashlib.sha256(encoded).digest()
    return stamp.to_bytes(8, "big") + encoded


def stamp_of(position: bytes) -> int:
    """Return the commit stamp of the message of a position."""
    return int.from_bytes(position[:8], "big")


def _position(row: SourceRow) -> bytes:
    return row.position
