"""RowtideReadRows: rows of one shard by their encoded keys, with a commit stamp.

For our own readers: a reader that got changes of some rows requests their present
content. The answer has every commit of the shard up to the stamp and none after, for
absent rows too. One shard answers a request, as far as one answer goes. The caller
continues with the remaining keys, so splits and merges meanwhile need no special case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import READ_ROWS_KEYS_MAX
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.read import RowAnswer, Selection, read_row
from rowtide.core.values import key
from rowtide.core.values.errors import invalid, invalid_key
from rowtide.core.values.schema import Table, check_key
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row_requests import note_named_key, parse, selection_of
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["ExactRows"]


class ExactRows:
    """The handler; it answers at once, in one turn of the event loop."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    @answers("RowtideReadRows")
    def read(self, identity: Identity, body: bytes) -> bytes:
        """Return rows as of one stamp."""
        request = parse(pb.ReadRowsRequest, body)
        directory = self._directory
        table = directory.find_table_for_rows(identity.instance, request.table_name, read=1)
        keys = self._check_keys(table, request.keys)
        wanted = pb.GetRangeRequest(columns_to_get=request.columns_to_get, max_versions=1)
        selection = note_named_key(selection_of(wanted, directory.limits), table)
        shard = table.shards[0]
        if len(table.shards) > 1:
            shard = directory.catalog.shard_for(table, keys[0])
        owner = directory.shard(shard)
        owner.require_readable()
        answer = pb.ReadRowsResponse(commit_stamp=owner.shard.state.stamp)
        units = 0
        room = directory.limits.range_bytes_max
        for encoded in keys:
            if shard.end and encoded >= shard.end:
                break
            found = self._read_row(owner, table, encoded, selection)
            row = found.wire if found is not None else b""
            room -= len(row)
            if room < 0 and answer.rows:
                break
            units += 1 if found is None else capacity.units(found.size - table.key_overhead)
            if found is not None and found.token:
                answer.too_large.append(len(answer.rows))
                row = b""
            answer.rows.append(HEADER + row if row else b"")
        answer.consumed.capacity_unit.read = units
        answer.consumed.capacity_unit.write = 0
        directory.consumption.count(table, None, units, 0)
        return answer.SerializeToString()

    def _read_row(
        self, owner: ShardOwner, table: Table, encoded: bytes, selection: Selection
    ) -> RowAnswer | None:
        directory = self._directory
        return read_row(
            owner.rows,
            row_key(table.table_id, encoded),
            selection,
            owner.shard.state.options,
            directory.clock_us() // 1000,
            bytes_max=directory.limits.row_bytes_max,
        )

    def _check_keys(self, table: Table, keys: Sequence[bytes]) -> Sequence[bytes]:
        """Return the keys. Raises if one is invalid: the answer relies on their order."""
        if not 1 <= len(keys) <= READ_ROWS_KEYS_MAX:
            raise invalid(
                f"The number of keys must be in [1, {READ_ROWS_KEYS_MAX}], but is {len(keys)}."
            )
        names = [name for name, _ in table.key_wire]
        for encoded in keys:
            try:
                values = key.decode(encoded)
                columns = list(zip(names, values, strict=True))
            except ValueError as error:
                raise invalid_key(f"A key is no encoded key of the table: {error}.") from error
            check_key(table, columns, self._directory.limits)
        if any(one >= following for one, following in pairwise(keys)):
            raise invalid("The keys must rise.")
        return keys
