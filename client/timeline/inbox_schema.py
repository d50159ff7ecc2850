"""The tables of inboxes: who is in a conversation, and one row for each message and member.

An inbox is a timeline of the sync table, named by its user. A row refers to a message: it has the
conversation, the message's id, and who sent it. The message's fields are read from the store table,
so an inbox shows a recall or an update as soon as it is made.

A conversation with too many members has one inbox of its own in the sync table, which its members
share. Names that begin with ``RESERVED`` are kept for such inboxes, so no user can have one.
"""

from __future__ import annotations

from rowtide.client.timeline.schema import SYNC_TTL_S, TimelineSchema
from rowtide.core.values.errors import invalid_key
from rowtide.core.values.variant import Scalar

__all__ = [
    "COPIES_MAX",
    "INBOX_CONVERSATION",
    "INBOX_MESSAGE",
    "INBOX_SENDER",
    "RESERVED",
    "SHARED_MARK",
    "check_user",
    "inbox_columns",
    "inbox_schema",
    "name_shared_inbox",
]

COPIES_MAX = 1000
"""Members up to which each one gets a row of its own for each message."""

INBOX_CONVERSATION, INBOX_MESSAGE, INBOX_SENDER = "conversation", "message_id", "sender"
"""Columns of an inbox row."""

RESERVED = "\0"
"""First letter of names that no user can have."""

SHARED_MARK = RESERVED
"""The user in the row that marks a conversation with a shared inbox, in the table of members."""


def inbox_schema(table: str, *, ttl_s: int = SYNC_TTL_S, stream_hours: int = 24) -> TimelineSchema:
    """Return the schema of a sync table."""
    return TimelineSchema(table, identifier=("user",), ttl_s=ttl_s, stream_hours=stream_hours)


def inbox_columns(conversation: str, id: int, sent_by: object) -> dict[str, Scalar]:
    """Return the columns of an inbox row. ``sent_by`` counts if it is a text."""
    columns: dict[str, Scalar] = {INBOX_CONVERSATION: conversation, INBOX_MESSAGE: id}
    if isinstance(sent_by, str):
        columns[INBOX_SENDER] = sent_by
    return columns


def name_shared_inbox(conversation: str) -> str:
    """Return the name of the inbox that the members of a conversation share."""
    return RESERVED + conversation


def check_user(user: str) -> None:
    """Raise OTSInvalidPK for the name of a user that is kept for something else."""
    if isinstance(user, str) and user.startswith(RESERVED):
        raise invalid_key(f"A user's name cannot begin with a zero byte: {user!r}.")
