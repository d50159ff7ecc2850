"""Plain writes of a batch, decoded and evaluated many at a time by a kernel.

``read_rows`` returns the rows that are plain writes (``plain_write.py``) and fit their table. A
``PlainBatch`` is such rows of one shard. It evaluates them over their present chunks, which it
reads together. Each row has a record of its own and succeeds or fails alone; the rows only wait
together. If a row depends on more than its own chunk, the shard evaluates all of them one by one.
Without kernels there are no such batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import cast

from rowtide.core import native
from rowtide.core.native import PlainRow
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import CHUNK_BYTES
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table

__all__ = ["PlainBatch", "read_rows"]

BODY_FACTOR = 4
"""A record's body is smaller than the largest plain row by this factor."""

_chunk_key, _encoded = itemgetter(2), itemgetter(3)


def read_rows(fields: list[bytes], table: Table, limits: Limits) -> list[PlainRow | None] | None:
    """Return the plain rows of a table's ``fields`` in a BatchWriteRow; None for any other row.

    Returns None instead of the list without a kernel, and for a table whose rows kernels do not
    read.
    """
    if table.main or table.auto_increment_index is not None:
        return None
    return native.kernels.read_rows(
        fields,
        table.table_id,
        table.key_wire,
        table.options.allow_update,
        limits.key_value_bytes_max,
        CHUNK_BYTES,
        limits.attribute_bytes_max,
        limits.attributes_per_write_max,
    )


class PlainBatch:
    """Plain rows of one shard; ``change`` returns one of them as a change, by its position.

    After ``evaluate`` there is an outcome per row, or the failure of a row that is not written.
    """

    def __init__(self, rows: list[PlainRow], change: Callable[[int], ChangeRequest]) -> None:
        self.outcomes: Sequence[Outcome | StoreError] = ()
        self._rows = rows
        self._change = change

    @property
    def changes(self) -> list[ChangeRequest]:
        """The rows as changes, made when read."""
        return [self._change(place) for place in range(len(self._rows))]

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return one record for each row that is written. The shard takes them as evaluated."""
        stamp = shard.take_stamp(now_us)
        group = self._at_once(shard, stamp) if self._is_plain(shard) else None
        if group is None:
            return self._one_by_one(shard, stamp, now_us)
        self.outcomes = [evaluated.outcome for evaluated in group]
        shard.take_group(group)
        return group

    def _is_plain(self, shard: Shard) -> bool:
        """True if each row depends on its own chunk only, and belongs to the shard."""
        stream, (low, high) = shard.state.stream, shard.keys
        encoded = [*map(_encoded, self._rows)]
        return (
            not shard.indexes
            and (stream is None or not stream.columns)
            and shard.limits.record_bytes_max >= BODY_FACTOR * CHUNK_BYTES
            and len({*encoded}) == len(encoded)
            and min(encoded) >= low
            and (not high or max(encoded) < high)
        )

    def _at_once(self, shard: Shard, stamp: int) -> list[Evaluated] | None:
        """Return all records; None if a kernel leaves one of them to the shard."""
        rows = self._rows
        firsts = shard.view.get_many([*map(_chunk_key, rows)])
        versions_max = shard.state.options.max_versions
        made = native.kernels.stored_writes(rows, firsts, stamp, versions_max, CHUNK_BYTES)
        if made is None or None in made:
            return None
        whole = cast(list[tuple[bytes, bytes]], made)
        overhead = shard.table.key_overhead
        return [
            Evaluated(_outcome(row[1], row[8] - overhead), at, row[3], body, [(row[2], chunk)])
            for at, row, (chunk, body) in zip(count(stamp), rows, whole, strict=False)
        ]

    def _one_by_one(self, shard: Shard, stamp: int, now_us: int) -> list[Evaluated]:
        # Use a separate view: if a chunk cannot be read, the shard has taken nothing.
        view = Overlay(shard.view)
        group: list[Evaluated] = []
        outcomes: list[Outcome | StoreError] = []
        for at, change in enumerate(self.changes, stamp):
            try:
                evaluated = shard.decide(change, view, at, now_us)
            except (Rejected, Unavailable) as error:
                outcomes.append(error)
                continue
            outcomes.append(evaluated.outcome)
            if evaluated.body is not None:
                view.add(evaluated.writes)
                group.append(evaluated)
        self.outcomes = outcomes
        shard.take_group(group)
        return group


@lru_cache(4096)
def _outcome(expectation: int, size: int) -> Outcome:
    """Return the outcome of a row that was written. Cached, because most rows have few sizes."""
    return Outcome(b"", int(expectation != 0), capacity.units(size))
