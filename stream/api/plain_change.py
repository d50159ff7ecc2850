"""Submits a PutRow, UpdateRow or DeleteRow that a kernel reads: a plain write (``plain_batch.py``).

The request has a table, a row, and at most a row expectation. Any other request, and every one that
is invalid, is left to the general path.
"""

from __future__ import annotations

import asyncio
from functools import partial

from rowtide.core.protocol.authentication import Identity
from rowtide.core.rows.mutation import ChangeRequest
from rowtide.core.shard.plain_batch import PlainWrite, read_write
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.plain_table import find_plain_table
from rowtide.stream.api.row_requests import change_of, parse_write, row_change
from rowtide.stream.api.write_reply import WriteReply

__all__ = ["submit_plain"]


def submit_plain(
    directory: Directory,
    identity: Identity,
    kind: int,
    body: bytes,
    loop: asyncio.AbstractEventLoop,
) -> asyncio.Future[bytes] | None:
    """Submit a write of one row; None: nothing was submitted, and the general path decides.

    Raises ``Unavailable`` and ``Elsewhere`` as that does.
    """
    named = find_plain_table(directory, identity, body)
    if named is None:
        return None
    table, at = named
    row = read_write(body, at, kind, table, directory.limits)
    if row is None:
        return None
    directory.require_space()
    shard = directory.catalog.shard_for(table, row[3])
    reply = WriteReply(loop, directory.consumption, table, None)
    change = partial(read_change, kind, body, table, directory.limits)
    directory.shard(shard).submit_plain(PlainWrite(row, change), reply)
    return reply.future


def read_change(kind: int, body: bytes, table: Table, limits: Limits) -> ChangeRequest:
    """Return the change of a request that a kernel has read, in the general way."""
    request, buffer = parse_write(kind, body)
    return change_of(row_change(buffer, kind, limits), kind, table, request, limits)
