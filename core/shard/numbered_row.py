"""A plain put of a row that the shard numbers, from its bytes to the chunk and the log record.

The row's key ends up with the commit stamp, which no other row has. So the row is new: nothing of
it is stored, and only its own cells decide its indexes. ``core/shard/plain_write.py`` has what
makes a put plain. The shard evaluates any other change; tests check that both give the same bytes.
"""

from __future__ import annotations

from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.records.change_body import write_indexes
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import CHUNK_BYTES
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.mutation import (
    IGNORE,
    PUT,
    RETURN_KEY,
    RETURN_NOTHING,
    ChangeRequest,
    Outcome,
)
from rowtide.core.shard.plain_write import Stored, WireCells
from rowtide.core.shard.shard_index import ShardIndexes
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values import variant
from rowtide.core.values.key_ranges import Range
from rowtide.core.values.schema import Table
from rowtide.core.values.variant import V_AUTO_INCREMENT

__all__ = ["fold_numbered"]

_new = tuple.__new__


def fold_numbered(
    change: ChangeRequest,
    table: Table,
    held: Range,
    state: ShardState,
    indexes: ShardIndexes,
    stamp: int,
) -> Stored | None:
    """Return the result of ``change``, or None if the shard has to evaluate it.

    ``held`` is the shard's range of keys. Raises OTSParameterInvalid for a value that an index
    cannot have.
    """
    cells, auto = change.cells, table.auto_increment_index
    if auto is None or type(cells) is not WireCells or not _is_alone(change, auto):
        return None
    if state.stream is not None and state.stream.columns:
        return None
    assigned = list(change.key)
    assigned[auto] = assigned[auto][0], variant.encode(stamp)
    piece, key_state = plainbuffer.key_piece(assigned)
    keys = native.kernels.row_keys(table.table_id, piece)
    if keys is None or keys[1] < held[0] or (held[1] and keys[1] >= held[1]):
        return None
    made = native.kernels.stored_write(
        True,
        piece,
        key_state,
        cells.wire,
        cells.size,
        stamp // 1000,
        stamp,
        None,
        state.options.max_versions,
        CHUNK_BYTES,
    )
    if made is None:
        return None
    chunk, body = made
    writes: Writes = [(keys[0], chunk)]
    if indexes:
        found = indexes.changes_of_new([value for _, value in assigned], cells, cells.wire)
        if found is None:
            return None
        if found:
            body = body[:-1] + write_indexes(found)
            writes += indexes.writes_of_new(found, stamp)
    returned = b""
    if change.return_type:
        returned = piece + bytes((0x09, plainbuffer.row_checksum(key_state, b"")))
    size = len(piece) - table.key_overhead + cells.data_bytes
    outcome = _new(Outcome, (returned, 0, capacity.units(size)))
    return _new(Stored, (keys[1], body, writes, outcome))


def _is_alone(change: ChangeRequest, auto: int) -> bool:
    """True for a put without a condition whose column ``auto`` the shard assigns."""
    return (
        change.kind == PUT
        and change.key[auto][1] == V_AUTO_INCREMENT
        and change.expectation == IGNORE
        and change.condition is None
        and change.time_ms is None
        and change.return_type in (RETURN_NOTHING, RETURN_KEY)
    )
