"""Rows of one source for one shard, logged as one group together with the position they reach.

Rows come in the order of their positions. Rows that the shard has already are skipped. A row that
is rejected, or that would make the group too large, ends the group before it. So the position never
passes a row that is not in the log, and the rest can be sent again.

A request may come as several batches, each after the previous ones. Nothing of a batch is written
unless the shard has the last row of the previous batches.

A put may leave an AUTO_INCREMENT column to the shard, which assigns the row's commit stamp. Such a
row has no key before it is evaluated: only its position says whether the shard has it already. Its
place among the shard's keys is that of the columns before the assigned one. A partition key is
never split, so they are enough to find the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.rows.overlay import Overlay
from rowtide.core.shard import source_row
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import ENVELOPE_BYTES, form_group
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.source_position import Reached
from rowtide.core.values import key, key_ranges
from rowtide.core.values.errors import Rejected, StoreError, Unavailable, invalid
from rowtide.core.values.key_ranges import Range, holds
from rowtide.core.values.variant import V_AUTO_INCREMENT

__all__ = ["Earlier", "SourceBatch", "earlier_row_missing"]

SKIPPED = Outcome(b"", 0, 0)
"""The outcome of a row that the shard has already."""

GROUP_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one group's records. A row beyond it waits for the next request, unless it is alone.
"""


POSITION_BYTES = 8192
"""Upper bound for a position's record in a group: a name, two keys, a position."""


class Earlier(NamedTuple):
    """Rows that a source sent in a request before a batch: ``changes`` and their ``positions``."""

    changes: Sequence[ChangeRequest]
    positions: Sequence[bytes]

    def is_held(self, keys: Range, reached: Reached) -> bool:
        """True if a shard of these keys has all rows that belong to it."""
        for change, position in zip(reversed(self.changes), reversed(self.positions), strict=True):
            encoded = _encode_key(change)
            if holds((keys,), encoded):
                return reached.holds(encoded, position)
        return True


NOTHING = Earlier((), ())


class SourceBatch:
    """Changes of ``source`` in the order of their ``positions``, after ``earlier`` ones.

    After ``evaluate`` there is an outcome per row, or the failure of a row that is not written.
    """

    def __init__(
        self,
        source: str,
        changes: Sequence[ChangeRequest],
        positions: Sequence[bytes],
        earlier: Earlier = NOTHING,
    ) -> None:
        self.source = source
        self.earlier = earlier
        self.changes = changes
        self.positions = positions
        self.outcomes: list[Outcome | StoreError] = []

    def evaluate(self, shard: Shard, now_us: int) -> list[Evaluated]:
        """Return the records of the rows, then that of the position.

        Raises ``Unavailable`` if the shard does not have one of the keys.
        """
        self.outcomes = []
        reached = shard.sources.find_reached(shard.view, self.source)
        if not self.earlier.is_held(shard.sources.keys(), reached):
            self._leave_rest()
            return []
        view = Overlay(shard.view)
        keys = [_encode_key(change) for change in self.changes]
        if keys:
            key_ranges.require(shard.keys, min(keys))
            key_ranges.require(shard.keys, max(keys))
        prefix = table_prefix(shard.table.table_id)
        rows = [prefix + encoded for encoded in keys]
        if shard.table.auto_increment_index is None:
            view.read_ahead(rows)  # Otherwise most rows are new, and their keys are not known.
        plain = source_row.is_plain(shard)
        group: list[Evaluated] = []
        size = 0
        fresh = False
        last = b""
        for change, encoded, at, position in zip(
            self.changes, keys, rows, self.positions, strict=True
        ):
            if position <= reached.all_above and reached.holds(encoded, position):
                self.outcomes.append(SKIPPED)
                last = position
                continue
            try:
                stamp = shard.take_stamp(now_us)
                evaluated = None
                if plain:
                    evaluated = source_row.evaluate_plain(change, encoded, at, shard, view, stamp)
                if evaluated is None:
                    evaluated = _evaluate(shard, change, encoded, view, stamp, now_us)
            except Rejected as error:
                self.outcomes.append(error)
                break
            if evaluated.body is not None:
                bytes_here = len(evaluated.body) + len(evaluated.log_key) + ENVELOPE_BYTES
                if bytes_here + POSITION_BYTES > shard.limits.record_bytes_max:
                    self.outcomes.append(_too_large(shard, bytes_here))
                    break
                size += bytes_here
                if group and size > GROUP_BYTES_MAX:
                    break
                view.add(evaluated.writes)
                group.append(evaluated)
            self.outcomes.append(evaluated.outcome)
            fresh, last = True, position
        self._leave_rest()
        if fresh:
            group.append(_position_record(shard, self.source, last, now_us))
        return form_group(group, shard)

    def _leave_rest(self) -> None:
        """Mark the rows after a rejected one, or beyond the group, as not written."""
        left = len(self.changes) - len(self.outcomes)
        self.outcomes += [earlier_row_missing()] * left


def earlier_row_missing() -> Unavailable:
    """Return the failure of a row that waits for an earlier one."""
    return Unavailable("A row before it was not written.")


def _evaluate(
    shard: Shard, change: ChangeRequest, encoded: bytes, view: Overlay, stamp: int, now_us: int
) -> Evaluated:
    """Return any evaluated change. Raises ``Rejected``."""
    known = encoded if shard.table.auto_increment_index is None else None
    resolved = shard.resolve(change, view, stamp, now_us, known)
    return shard.evaluate_resolved(resolved, view, stamp, now_us)


def _encode_key(change: ChangeRequest) -> bytes:
    """Return the encoded key of a row, up to the column that the shard assigns."""
    values = [value for _, value in change.key]
    if V_AUTO_INCREMENT in values:
        del values[values.index(V_AUTO_INCREMENT) :]
    return key.encode(values)


def _too_large(shard: Shard, size: int) -> Rejected:
    limit = shard.limits.record_bytes_max - POSITION_BYTES
    return invalid(
        f"The size of the row change exceeds the limit, limit size: {limit}, data size: {size}."
    )


def _position_record(shard: Shard, source: str, position: bytes, now_us: int) -> Evaluated:
    body = shard.sources.record(source, position)
    stamp = shard.take_stamp(now_us)
    writes: Writes = [shard.sources.write_of(body)]
    return Evaluated(SKIPPED, stamp, b"", record.encode_body(body), writes)
