"""RowtidePutOnce: a put of a new row, unless a local index has a row like it already.

Timelines send it: a message that is sent again is stored once (``core/shard/unique_put.py``). The
answer has the key of the stored row in both cases. So a request with an unknown outcome may be
repeated, by any client, any number of times.
"""

from __future__ import annotations

import asyncio

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import PUT_ONCE
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import PUT, RETURN_KEY, ChangeRequest, Outcome
from rowtide.core.shard.unique_put import UniquePut, find_unique_index
from rowtide.core.values.errors import NotBuilt, StoreError, invalid
from rowtide.core.values.schema import Table
from rowtide.core.values.variant import V_AUTO_INCREMENT
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import check_write
from rowtide.stream.api.row_answers import row_answer
from rowtide.stream.api.row_requests import change_of, parse, row_change
from rowtide.stream.measures.consumption import Consumption

__all__ = ["submit_unique"]

_WITHOUT_CONDITION = pb.PutRowRequest()

IS_NEW, IS_STORED = b"\x18\x01", b"\x18\x00"
"""Field 3 of the answer."""


def submit_unique(
    directory: Directory, identity: Identity, body: bytes, loop: asyncio.AbstractEventLoop
) -> asyncio.Future[bytes]:
    """Submit a put; the future gets the answer. Raises what rejects the request."""
    request = parse(pb.PutOnceRequest, body)
    row = row_change(request.row, PUT, directory.limits)
    table = directory.find_table_for_rows(identity.instance, request.table_name, write=1)
    check_write(table, PUT)
    change = change_of(row, PUT, table, _WITHOUT_CONDITION, directory.limits)
    change.return_type = RETURN_KEY
    index = find_unique_index(table, request.index_name)
    if index.building:
        raise NotBuilt
    put = UniquePut(_require_generated(change, table), index)
    directory.require_space()
    directory.consumption.require(table, put.partition_key)
    reply = _Reply(put, table, directory.consumption, loop)
    directory.owner(table, row.key).submit_group(put, reply)
    return reply.future


def _require_generated(change: ChangeRequest, table: Table) -> ChangeRequest:
    """Return a change whose key the server completes. Raises OTSParameterInvalid for another."""
    name, value = change.key[table.auto_increment_index or 0]
    if value != V_AUTO_INCREMENT:
        raise invalid(f"Column '{name.decode()}' must be left to the server in {PUT_ONCE}.")
    return change


class _Reply:
    """The answer to a put, from its outcome, whose units are counted."""

    def __init__(
        self,
        put: UniquePut,
        table: Table,
        consumption: Consumption,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._put = put
        self._table = table
        self._consumption = consumption

    def __call__(self, result: Outcome | StoreError) -> None:
        """Take the result; after an unknown outcome a later one is ignored."""
        if self.future.done():
            return
        if isinstance(result, StoreError):
            self.future.set_exception(result)
            return
        row, read, write = self._put.outcome
        self._consumption.count(self._table, self._put.partition_key, read, write)
        self.future.set_result(
            row_answer(read, write, row) + (IS_NEW if self._put.is_new else IS_STORED)
        )
