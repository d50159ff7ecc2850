"""Which reader of a consumer reads which shard, and how far: rows of a rowtide table.

A row is changed only if its ``counter`` is the one that was read, and each change raises the
counter. So of two concurrent changes one succeeds. A reader that has lost a lease can neither renew
it nor move its checkpoint. For an observer a lease has expired when its counter has not moved for
long enough on the observer's own clock: no two clocks are compared.
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

__all__ = [
    "LEASE_TABLE",
    "START",
    "Leases",
    "MemoryLeases",
    "ReaderLease",
    "TableLeases",
    "decode_pending",
    "encode_pending",
]

LEASE_TABLE = "rowtide_readers"
"""The default: one table for all consumers of an instance."""

KEY = (("consumer", STRING), ("shard", STRING))

START = "#start"
"""In place of a shard id: the row where the consumer began. No shard has this name."""


class ReaderLease(NamedTuple):
    """A consumer's row for one shard.

    ``owner`` is empty while no reader has it. ``wanted`` is the reader that requested it.
    ``position`` is the checkpoint, empty before the first. ``pending`` are the ranges whose rows
    are still to be read. ``ended``: the shard is read to its end, so its children can be read.
    ``epoch`` rises when the consumer is rewound. A row of an earlier epoch only shows which reader
    may still be reading.
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
        """Use the rows of the table that is read. Create the table of leases if it is missing."""
        ...

    async def read(self, table: str) -> dict[str, ReaderLease]:
        """Return the rows for a table, without ``open``: it creates nothing.

        Without a table of leases there are none.
        """
        ...

    async def all(self) -> dict[str, ReaderLease]:
        """Return every row by its shard, including ``START``."""
        ...

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Create a row unless it exists; return the stored row."""
        ...

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace ``old`` by ``new`` with the next counter; return the stored row.

        If ``old`` is not stored any more, it is not replaced: the result is ``old`` or another row.
        """
        ...

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row if it is stored unchanged."""
        ...


class MemoryLeases:
    """Leases of readers in one process. They are lost when it ends."""

    def __init__(self, consumer: str = "") -> None:
        self.consumer = consumer
        self._rows: dict[str, ReaderLease] = {}

    async def open(self, table: str) -> None:
        """Do nothing: there is no table to create."""

    async def read(self, table: str) -> dict[str, ReaderLease]:
        """Return the rows, see ``Leases.read``."""
        return await self.all()

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
    """Leases in a table of the instance, which every reader of the consumer can access.

    One consumer may read several tables.
    """

    def __init__(self, endpoint: Endpoint, consumer: str, *, table: str = LEASE_TABLE) -> None:
        self._endpoint = endpoint
        self.consumer = consumer
        self._rows_of = consumer
        self._table = table

    async def open(self, table: str) -> None:
        """Create the table of leases if it is missing. ``table`` may be empty."""
        self._select_rows(table)
        request = pb.DescribeTableRequest(table_name=self._table)
        try:
            await self._endpoint.call("DescribeTable", request, pb.DescribeTableResponse)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            options = pb.TableOptions(time_to_live=-1, max_versions=1)
            await make_table(self._endpoint, self._table, KEY, options)

    async def read(self, table: str) -> dict[str, ReaderLease]:
        """Return the rows, see ``Leases.read``."""
        self._select_rows(table)
        try:
            return await self.all()
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            return {}

    def _select_rows(self, table: str) -> None:
        """Use the rows of this consumer for ``table``."""
        self._rows_of = f"{self.consumer}/{table}" if table else self.consumer

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
            answer = await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            for row in plainbuffer.decode_rows(answer.rows) if answer.rows else ():
                lease = _lease(row)
                found[lease.shard_id] = lease
            if not answer.next_start_primary_key:
                return found
            request.inclusive_start_primary_key = answer.next_start_primary_key

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Make a row, see ``Leases.create``."""
        condition = pb.Condition(row_existence=pb.EXPECT_NOT_EXIST)
        return await self._put(lease, condition) or lease

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, see ``Leases.change``."""
        new = new._replace(counter=old.counter + 1)
        return await self._put(new, _counter_condition(old)) or old

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row, see ``Leases.remove``."""
        request = pb.DeleteRowRequest(
            table_name=self._table,
            primary_key=self._key(variant.encode(lease.shard_id), deleted=True),
            condition=_counter_condition(lease),
        )
        try:
            await self._endpoint.call("DeleteRow", request, pb.DeleteRowResponse)
        except Rejected as error:
            if error.code != "OTSConditionCheckFail":
                raise

    async def _put(self, lease: ReaderLease, condition: pb.Condition) -> ReaderLease | None:
        """Write a row under a condition; return the row that is stored then."""
        request = pb.PutRowRequest(
            table_name=self._table,
            row=self._key(variant.encode(lease.shard_id), _columns(lease)),
            condition=condition,
        )
        try:
            await self._endpoint.call("PutRow", request, pb.PutRowResponse)
        except (Rejected, OutcomeUnknown) as error:
            # Rejected or unknown: read the row. The counter stops this write from being applied
            # later.
            if isinstance(error, Rejected) and error.code != "OTSConditionCheckFail":
                raise
            return await self._get(lease.shard_id)
        return lease

    async def _get(self, shard_id: str) -> ReaderLease | None:
        request = pb.GetRowRequest(
            table_name=self._table, primary_key=self._key(variant.encode(shard_id)), max_versions=1
        )
        answer = await self._endpoint.call("GetRow", request, pb.GetRowResponse)
        return _lease(plainbuffer.decode_row(answer.row)) if answer.row else None

    def _key(
        self, shard: bytes, columns: Mapping[str, Scalar] | None = None, *, deleted: bool = False
    ) -> bytes:
        key = [(b"consumer", variant.encode(self._rows_of)), (b"shard", shard)]
        cells = [
            plainbuffer.put_cell(name.encode(), variant.encode(value), None)
            for name, value in (columns or {}).items()
        ]
        return HEADER + plainbuffer.encode_row(key, cells, deleted=deleted)


def _counter_condition(lease: ReaderLease) -> pb.Condition:
    """Return the condition that a row has the lease's counter."""
    test = has_value("counter", lease.counter)
    return pb.Condition(row_existence=pb.EXPECT_EXIST, column_condition=test.SerializeToString())


def encode_pending(pending: Ranges) -> str:
    """Return the text under which the ranges that a reader has not read yet are stored."""
    return json.dumps([[begin.hex(), end.hex()] for begin, end in pending])


def decode_pending(text: str) -> Ranges:
    """Return the ranges of ``encode_pending``. Raises ValueError."""
    return tuple((bytes.fromhex(begin), bytes.fromhex(end)) for begin, end in json.loads(text))


def _columns(lease: ReaderLease) -> dict[str, Scalar]:
    return {
        "counter": lease.counter,
        "owner": lease.owner,
        "wanted": lease.wanted,
        "position": lease.position,
        "pending": encode_pending(lease.pending),
        "ended": lease.ended,
        "epoch": lease.epoch,
    }


def _lease(row: plainbuffer.RowChange) -> ReaderLease:
    """Return the lease in a row. Raises ``Rejected`` if the row is not a lease."""
    try:
        columns = {cell.name: variant.decode(cell.variant) for cell in row.cells}
        return ReaderLease(
            str(variant.decode(row.key[1][1])),
            int(columns[b"counter"]),
            str(columns[b"owner"]),
            str(columns[b"wanted"]),
            str(columns[b"position"]),
            decode_pending(str(columns[b"pending"])),
            bool(columns[b"ended"]),
            int(columns.get(b"epoch", 0)),
        )
    except (KeyError, ValueError, StoreError) as error:
        raise Rejected("OTSParameterInvalid", f"A row of leases can't be read: {error}.") from error
