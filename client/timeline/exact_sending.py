"""Stores a message exactly once, by the sender's own id of it.

A local transaction holds the partition key while the index by message id is read and the message
is put. Only one sender at a time can do both, and a stored message is in the local index as soon as
its commit is answered. So of two attempts with one message id, in any processes, the second one
finds the message of the first. A delayed request of an attempt that was given up finds its
transaction ended.

While a transaction is open, other writes to the partition key are rejected and repeated by their
clients. A sender that dies in between blocks them until the server ends its transaction, 60 s
later at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from operator import and_

from rowtide.client.async_client import AsyncClient
from rowtide.client.predicates import column
from rowtide.client.row_values import RowDict
from rowtide.client.timeline.schema import MESSAGE_ID, TimelineSchema
from rowtide.core.values.errors import Rejected, StoreError, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.variant import Scalar

__all__ = ["send_once"]

ATTEMPTS = 3
"""A transaction ends with its owner. A shard rarely changes its owner more often than this."""


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
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _attempt(client, schema, schema.index, identifier, columns)
        except Rejected as failure:
            # The transaction ended before its commit, so nothing was stored by it.
            if failure.code != "OTSSessionNotExist" or attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _attempt(
    client: AsyncClient,
    schema: TimelineSchema,
    index: str,
    identifier: Mapping[str, Scalar],
    columns: Mapping[str, Scalar],
) -> RowDict:
    partition = next(iter(identifier))
    async with client.transaction(schema.table, identifier[partition]) as transaction:
        # Most messages are new. So the index is read once, where the answer counts: no other sender
        # can store this message before the transaction ends.
        stored = await _find(client, schema, index, identifier, columns[MESSAGE_ID])
        if stored is not None:
            with suppress(StoreError):  # If this fails, the server ends it later.
                await transaction.abort()
            return stored
        row = {**identifier, **columns}
        return row | await transaction.put(row)


async def _find(
    client: AsyncClient,
    schema: TimelineSchema,
    index: str,
    identifier: Mapping[str, Scalar],
    message_id: Scalar,
) -> RowDict | None:
    """Return the message with an id, or None. Of several, the first one."""
    partition, *names = identifier
    tests = [column(name) == identifier[name] for name in names]
    wanted = reduce(and_, tests) if tests else None
    prefix = {partition: identifier[partition], MESSAGE_ID: message_id}
    async for row in client.range(index, prefix=prefix, filter=wanted):
        key = {**identifier, schema.sequence: row[schema.sequence]}
        stored = await client.get(schema.table, key)
        if stored is not None:
            return stored
    return None


def _check_message_id(message_id: object, limits: Limits) -> None:
    if not isinstance(message_id, str):
        raise invalid(f"message_id takes a text, not {type(message_id).__name__}.")
    size = len(message_id.encode())
    if not 1 <= size <= limits.key_value_bytes_max:
        raise invalid(
            f"message_id has {size} bytes; it must have 1 to {limits.key_value_bytes_max}."
        )
