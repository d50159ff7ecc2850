"""Which reader of a consumer reads which shard, and how far it is: rows of a rowtide table.

A row is changed only under the condition that its ``counter`` is the one that was read, and the
counter rises with each change. So of two who change it one alone succeeds, and whoever lost a lease
can neither renew it nor move its checkpoint. A lease has ended for an observer who has not seen
its counter move for long enough on the observer's own clock: no two clocks are compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from rowtide.client.changes.own_tables import has_value, make_table
from rowtide.client.endpoint import Endpoint
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError
from rowtide.core.values.key_ranges import Ranges
from rowtide.core.values.schema import STRING
from rowtide.core.values.variant import Scalar

__all__ = ["LEASE_TABLE", "START", "Leases", "MemoryLeases", "ReaderLease", "TableLeases"]

LEASE_TABLE = "rowtide_readers"
"""One for all consumers of an instance, unless another is named."""

KEY = (("consumer", STRING), ("shard", STRING))

START = "#start"
"""In place of a shard: where the consumer began. No shard is named so."""


class ReaderLease(NamedTuple):
    """What a consumer's row of a shard says.

    ``owner`` is empty while nobody reads; ``wanted`` names who asked for it. ``position`` is the
    checkpoint, empty before the first; ``pending`` are the ranges whose rows are still to be read.
    ``ended``: the shard is read to its end, and its children may be. ``epoch`` rises when the
    consumer is rewound; a row of an earlier one says nothing but who may still be reading.
    """

    shard_id: str
    counter: int = 0
    owner: str = ""
    wanted: str = ""
    position: str = ""
    pending: Ranges = ()
    ended: bool = False
    epoch: int = 0


class Leases(Protocol):
    """The rows of one consumer. Every method raises ``StoreError``."""

    consumer: str

    async def open(self, table: str) -> None:
        """Be the rows for a table that is read; make the table of leases where it is missing."""
        ...

    async def all(self) -> dict[str, ReaderLease]:
        """Return every row by its shard, ``START`` among them."""
        ...

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Make a row unless it is there; return it as it stands."""
        ...

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace ``old`` by ``new`` with the next counter, if it stands; return what stands.

        That is ``old`` or any other where it was not replaced.
        """
        ...

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row if it stands."""
        ...


class MemoryLeases:
    """Leases of readers in one process: nothing is kept beyond it."""

    def __init__(self, consumer: str = "") -> None:
        self.consumer = consumer
        self._rows: dict[str, ReaderLease] = {}

    async def open(self, table: str) -> None:
        """There is nothing to make."""

    async def all(self) -> dict[str, ReaderLease]:
        """Return the rows, see ``Leases.all``."""
        return dict(self._rows)

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Make a row, see ``Leases.create``."""
        return self._rows.setdefault(lease.shard_id, lease)

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, see ``Leases.change``."""
        now = self._rows[old.shard_id]
        if now == old:
            now = self._rows[old.shard_id] = new._replace(counter=old.counter + 1)
        return now

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row, see ``Leases.remove``."""
        if self._rows.get(lease.shard_id) == lease:
            del self._rows[lease.shard_id]


class TableLeases:
    """Leases in a table of the instance, which every reader of the consumer reaches.

    The same consumer may read several tables.
    """

    def __init__(self, endpoint: Endpoint, consumer: str, *, table: str = LEASE_TABLE) -> None:
        self._endpoint = endpoint
        self.consumer = consumer
        self._rows_of = consumer
        self._table = table

    async def open(self, table: str) -> None:
        """Make the table of leases where it is missing; they may be of no table in particular."""
        self._rows_of = f"{self.consumer}/{table}" if table else self.consumer
        known = pb.DescribeTableRequest(table_name=self._table)
        try:
            await self._endpoint.call("DescribeTable", known, pb.DescribeTableResponse)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            options = pb.TableOptions(time_to_live=-1, max_versions=1)
            await make_table(self._endpoint, self._table, KEY, options)

    async def all(self) -> dict[str, ReaderLease]:
        """Return the rows, see ``Leases.all``."""
        request = pb.GetRangeRequest(
            table_name=self._table,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=self._key(variant.V_INF_MIN),
            exclusive_end_primary_key=self._key(variant.V_INF_MAX),
        )
        found: dict[str, ReaderLease] = {}
        while True:
            told = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            for row in plainbuffer.decode_rows(told.rows) if told.rows else ():
                lease = _lease(row)
                found[lease.shard_id] = lease
            if not told.next_start_primary_key:
                return found
            request.inclusive_start_primary_key = told.next_start_primary_key

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Make a row, see ``Leases.create``."""
        condition = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
        return await self._put(lease, condition) or lease

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, see ``Leases.change``."""
        new = new._replace(counter=old.counter + 1)
        return await self._put(new, _unchanged(old)) or old

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row, see ``Leases.remove``."""
        request = pb.DeleteRowRequest(
            table_name=self._table,
            primary_key=self._key(variant.encode(lease.shard_id), deleted=True),
            condition=_unchanged(lease),
        )
        try:
            await self._endpoint.call("DeleteRow", request, pb.DeleteRowResponse)
        except Rejected as error:
            if error.code != "OTSConditionCheckFail":
                raise

    async def _put(self, lease: ReaderLease, condition: pb.Condition) -> ReaderLease | None:
        """Write a row under a condition; return what stands then."""
        request = pb.PutRowRequest(
            table_name=self._table,
            row=self._key(variant.encode(lease.shard_id), _columns(lease)),
            condition=condition,
        )
        try:
            await self._endpoint.call("PutRow", request, pb.PutRowResponse)
        except (Rejected, OutcomeUnknown) as error:
            # Refused, or who knows: the row itself tells. The counter lets nothing land later.
            if isinstance(error, Rejected) and error.code != "OTSConditionCheckFail":
                raise
            return await self._get(lease.shard_id)
        return lease

    async def _get(self, shard_id: str) -> ReaderLease | None:
        request = pb.GetRowRequest(
            table_name=self._table, primary_key=self._key(variant.encode(shard_id)), max_versions=1
        )
        told = await self._endpoint.call("GetRow", request, pb.GetRowResponse)
        return _lease(plainbuffer.decode_row(told.row)) if told.row else None

    def _key(
        self, shard: bytes, columns: Mapping[str, Scalar] | None = None, *, deleted: bool = False
    ) -> bytes:
        key = [(b"consumer", variant.encode(self._rows_of)), (b"shard", shard)]
        cells = [
            plainbuffer.put_cell(name.encode(), variant.encode(value), None)
            for name, value in (columns or {}).items()
        ]
        return HEADER + plainbuffer.encode_row(key, cells, deleted=deleted)


def _unchanged(lease: ReaderLease) -> pb.Condition:
    """Return the condition that a row has the lease's counter."""
    test = has_value("counter", lease.counter)
    return pb.Condition(row_existence=pb.EXPECT_EXIST, column_condition=test.SerializeToString())


def _columns(lease: ReaderLease) -> dict[str, Scalar]:
    pending = json.dumps([[begin.hex(), end.hex()] for begin, end in lease.pending])
    return {
        "counter": lease.counter,
        "owner": lease.owner,
        "wanted": lease.wanted,
        "position": lease.position,
        "pending": pending,
        "ended": lease.ended,
        "epoch": lease.epoch,
    }


def _lease(row: plainbuffer.RowChange) -> ReaderLease:
    """Return what a row says. Raises ``Rejected`` where the row is none of ours."""
    try:
        told = {cell.name: variant.decode(cell.variant) for cell in row.cells}
        pending = json.loads(str(told[b"pending"]))
        return ReaderLease(
            str(variant.decode(row.key[1][1])),
            int(told[b"counter"]),
            str(told[b"owner"]),
            str(told[b"wanted"]),
            str(told[b"position"]),
            tuple((bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in pending),
            bool(told[b"ended"]),
            int(told.get(b"epoch", 0)),
        )
    except (KeyError, ValueError, StoreError) as error:
        raise Rejected("OTSParameterInvalid", f"A row of leases can't be read: {error}.") from error
