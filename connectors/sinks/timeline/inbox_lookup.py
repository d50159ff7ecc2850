"""Finds the inboxes that lack a message: for one that was parked and is written again."""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.client.endpoint import Endpoint
from rowtide.client.predicates import column
from rowtide.client.timeline.inbox_schema import INBOX_CONVERSATION, INBOX_MESSAGE
from rowtide.connectors.sinks.timeline.inbox_rows import InboxTable, StoredMessage
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.limits import INT64_MAX

__all__ = ["users_without"]

SKEW_US = 600_000_000
"""How much smaller the id of an inbox row may be than that of its message: clocks differ."""


async def users_without(
    endpoint: Endpoint, inbox: InboxTable, message: StoredMessage, users: Sequence[str]
) -> list[str]:
    """Return the users in whose inbox a message is not. Raises ``StoreError``."""
    return [user for user in users if not await _has(endpoint, inbox, message, user)]


async def _has(endpoint: Endpoint, inbox: InboxTable, message: StoredMessage, user: str) -> bool:
    request = _request(inbox, message, user)
    while True:
        response = await endpoint.call("GetRange", request, pb.GetRangeResponse)
        if plainbuffer.decode_rows(response.rows):
            return True
        if not response.next_start_primary_key:
            return False
        request.inclusive_start_primary_key = response.next_start_primary_key


def _request(inbox: InboxTable, message: StoredMessage, user: str) -> pb.GetRangeRequest:
    first = (inbox.user.encode(), variant.encode(user))
    sequence = inbox.sequence.encode()
    low = [first, (sequence, variant.encode(max(0, message.id - SKEW_US)))]
    high = [first, (sequence, variant.encode(INT64_MAX))]
    is_message = column(INBOX_MESSAGE) == message.id
    wanted = is_message & (column(INBOX_CONVERSATION) == message.conversation)
    return pb.GetRangeRequest(
        table_name=inbox.name,
        direction=pb.FORWARD,
        max_versions=1,
        limit=1,
        filter=wanted.encode(),
        inclusive_start_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(low, []),
        exclusive_end_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(high, []),
    )
