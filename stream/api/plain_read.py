"""Answers a GetRow of a whole row by kernels, from the request's bytes to the answer's.

A read is plain if it has a table, a key and a number of versions, and the stored row answers as it
is. Any other read, and every one that fails, is left to the general path.
"""

from __future__ import annotations

from rowtide.core import native
from rowtide.core.protocol.authentication import Identity
from rowtide.core.rows.chunk import DELETED
from rowtide.core.values.schema import Table
from rowtide.core.values.version import expiry_floor_ms
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.plain_table import find_plain_table
from rowtide.stream.api.row_answers import row_answer

__all__ = ["answer_plain"]

ABSENT = row_answer(1, 0, b"")


def answer_plain(directory: Directory, identity: Identity, body: bytes) -> bytes | None:
    """Return the answer of a GetRow; None: nothing was counted, and the general path decides.

    Raises ``Unavailable`` and ``Elsewhere`` as that does.
    """
    named = find_plain_table(directory, identity, body)
    if named is None:
        return None
    table, at = named
    found = native.kernels.read_get(
        body, at, table.table_id, table.key_wire, directory.limits.key_value_bytes_max
    )
    return _answer(directory, table, *found) if found is not None else None


def _answer(
    directory: Directory, table: Table, chunk_key: bytes, encoded: bytes, versions: int
) -> bytes | None:
    owner = directory.shard(directory.catalog.shard_for(table, encoded))
    owner.require_readable()
    first = owner.rows.get(chunk_key)
    if first is None or first[1] & DELETED:
        directory.consumption.count(table, None, 1, 0)
        return ABSENT
    options = owner.shard.state.options
    floor_ms = expiry_floor_ms(options, directory.clock_us() // 1000)
    versions = min(versions, options.max_versions)
    made = native.kernels.whole_answer(first, floor_ms, versions, table.key_overhead)
    if made is None:
        return None
    answer, units = made
    directory.consumption.count(table, None, units, 0)
    return answer
