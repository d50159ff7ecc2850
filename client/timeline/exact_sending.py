"""Stores a message exactly once, by the sender's own id of it.

The server reads the index by message id and puts the message in one step (``RowtidePutOnce``). So
of two attempts with one message id, in any processes, the second one gets the id of the first one's
message. A repeat does no harm: after a lost answer the request is sent again.
"""

from __future__ import annotations

from collections.abc import Mapping

from rowtide.client.async_client import AsyncClient
from rowtide.client.row_values import RowDict
from rowtide.client.timeline.schema import TimelineSchema
from rowtide.core.values.errors import Unavailable, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.variant import Scalar

__all__ = ["send_once"]

ATTEMPTS = 3
"""How often a stored message may be deleted before its sender has read it."""


async def send_once(
    client: AsyncClient,
    schema: TimelineSchema,
    identifier: Mapping[str, Scalar],
    columns: Mapping[str, Scalar],
    *,
    message_id: str,
) -> RowDict:
    """Return the row of the message with this id, which is stored if it is absent."""
    if schema.index is None:
        raise invalid(
            f"Table '{schema.table}' has no index by message id: send needs ids of the server, no "
            f"expiry, and has_send_index."
        )
    _check_message_id(message_id, client.limits)
    row = {**identifier, **columns}
    for _ in range(ATTEMPTS):
        stored = await client.put_once(schema.table, row, index=schema.index)
        if stored.is_new:
            return row | stored.key
        first = await client.get(schema.table, stored.key)
        if first is not None:
            return first
    raise Unavailable(f"Message '{message_id}' was deleted each time before it was read.")


def _check_message_id(message_id: object, limits: Limits) -> None:
    if not isinstance(message_id, str):
        raise invalid(f"message_id takes a text, not {type(message_id).__name__}.")
    size = len(message_id.encode())
    if not 1 <= size <= limits.key_value_bytes_max:
        raise invalid(
            f"message_id has {size} bytes; it must have 1 to {limits.key_value_bytes_max}."
        )
