"""Plain writes, decoded and evaluated many at a time by a kernel.

``read_rows`` returns the rows of a batch that are plain writes (``core/native``) and fit their
table; ``read_write`` returns the row of a request that writes one. A ``PlainBatch`` is such rows of
one shard. It evaluates them over their present chunks, which it reads together. Each row has a
record of its own and succeeds or fails alone; the rows only wait together. If a row depends on more
than its own chunk, the shard evaluates all of them one by one. ``evaluate_together`` does the same
for rows of several requests, which also wait apart. Without kernels there are no plain writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from operator import itemgetter
from typing import NamedTuple, cast

from rowtide.core import native
from rowtide.core.native import PlainRow
from rowtide.core.rows.chunk import CHUNK_BYTES
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.shard import Shard
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.core.values.version import expiry_floor_ms

__all__ = [
    "PlainBatch",
    "PlainWrite",
    "evaluate_together",
    "is_independent",
    "read_rows",
    "read_write",
]

BODY_FACTOR = 4
"""A record's body is smaller than the largest plain row by this factor."""

_Rules = tuple[int, tuple[tuple[bytes, int], ...], bool, int, int, int, int]

_chunk_key, _encoded = itemgetter(2), itemgetter(3)
_outcome: Callable[[Evaluated], Outcome] = itemgetter(0)


def read_rows(fields: list[bytes], table: Table, limits: Limits) -> list[PlainRow | None] | None:
    """Return the plain rows of a table's ``fields`` in a BatchWriteRow; None for any other row.

    Returns None instead of the list without a kernel, and for a table whose rows kernels do not
    read.
    """
    rules = _row_rules(table, limits)
    return native.kernels.read_rows(fields, *rules) if rules is not None else None


def read_write(message: bytes, at: int, kind: int, table: Table, limits: Limits) -> PlainRow | None:
    """Return the row of a PutRow, UpdateRow or DeleteRow if it is a plain write.

    ``at`` is behind the table's name, ``kind`` the kind of change.
    """
    rules = _row_rules(table, limits)
    return native.kernels.read_write(message, at, kind, *rules) if rules is not None else None


def _row_rules(table: Table, limits: Limits) -> _Rules | None:
    """Return what a table's rows must be like; None if kernels do not read them."""
    if table.main or table.auto_increment_index is not None:
        return None
    return (
        table.table_id,
        table.key_wire,
        table.options.allow_update,
        limits.key_value_bytes_max,
        CHUNK_BYTES,
        limits.attribute_bytes_max,
        limits.attributes_per_write_max,
    )


class PlainWrite(NamedTuple):
    """A plain write of one request. ``change`` reads it again in the general way."""

    row: PlainRow
    change: Callable[[], ChangeRequest]


def is_independent(shard: Shard, rows: Sequence[PlainRow]) -> bool:
    """True if each row depends on its own chunk only, and belongs to the shard."""
    low, high = shard.keys
    encoded = [*map(_encoded, rows)]
    return (
        not shard.indexes
        and shard.limits.record_bytes_max >= BODY_FACTOR * CHUNK_BYTES
        and len({*encoded}) == len(encoded)
        and min(encoded) >= low
        and (not high or max(encoded) < high)
    )


def evaluate_together(
    shard: Shard, writes: Sequence[PlainWrite], now_us: int
) -> list[Evaluated | StoreError]:
    """Return each write's record, or the rejection that it would get alone.

    The writes are independent. The shard takes them as evaluated. If a chunk cannot be read,
    nothing has changed.
    """
    stamp = shard.next_stamp(now_us)
    rows = [write.row for write in writes]
    made = _make_writes(shard, rows, stamp, now_us) or [None] * len(rows)
    results: list[Evaluated | StoreError] = []
    for at, (_, change), evaluated in zip(count(stamp), writes, made, strict=False):
        if evaluated is not None:
            results.append(evaluated)
            continue
        try:
            results.append(shard.decide(change(), shard.view, at, now_us))
        except (Rejected, Unavailable) as error:
            results.append(error)
    shard.take_group(
        [one for one in results if isinstance(one, Evaluated) and one.body is not None]
    )
    return results


def _make_writes(
    shard: Shard, rows: list[PlainRow], stamp: int, now_us: int
) -> list[Evaluated | None] | None:
    """Return each row as evaluated; None if a kernel leaves it to the shard."""
    firsts = shard.view.get_many([*map(_chunk_key, rows)])
    options = shard.state.options
    floor_ms, overhead = expiry_floor_ms(options, now_us // 1000), shard.table.key_overhead
    most = options.max_versions
    made = native.kernels.stored_writes(
        rows, firsts, stamp, floor_ms, most, CHUNK_BYTES, overhead, Evaluated, Outcome
    )
    names = shard.originals
    if made is None or names is None:
        return made
    body_bytes_max = shard.limits.record_bytes_max
    return [
        evaluated and _keep_columns(evaluated, first, names, floor_ms, body_bytes_max)
        for evaluated, first in zip(made, firsts, strict=True)
    ]


def _keep_columns(
    evaluated: Evaluated,
    first: bytes | None,
    names: tuple[bytes, ...],
    version_min: int,
    body_bytes_max: int,
) -> Evaluated | None:
    """Return a row as evaluated, with the original columns of its chunk before."""
    assert evaluated.body is not None
    body = native.kernels.keep_columns(evaluated.body, first, names, version_min)
    fits = body is not None and len(body) <= body_bytes_max
    return evaluated._replace(body=body) if fits else None


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
        group = None
        if is_independent(shard, self._rows):
            group = self._at_once(shard, stamp, now_us)
        if group is None:
            return self._one_by_one(shard, stamp, now_us)
        self.outcomes = [*map(_outcome, group)]
        shard.take_group(group)
        return group

    def _at_once(self, shard: Shard, stamp: int, now_us: int) -> list[Evaluated] | None:
        """Return all records; None if a kernel leaves one of them to the shard."""
        made = _make_writes(shard, self._rows, stamp, now_us)
        return cast(list[Evaluated], made) if made is not None and all(made) else None

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
