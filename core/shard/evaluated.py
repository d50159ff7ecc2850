"""The results of a shard: of a change that it evaluated, and of an entry that it replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.rows.fold import RowAddress, Writes
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.cell import Cell

__all__ = ["Evaluated", "Replayed", "Resolved"]


@dataclass(slots=True)
class Resolved:
    """A change in which nothing is left to decide: key, versions and values are final.

    It can be folded and logged later. The result for its row stays the same until another writer
    changes that row.
    """

    kind: int
    key: list[bytes]
    encoded_key: bytes
    at: RowAddress
    cells: Sequence[Cell]
    read_units: int
    returned: bytes
    """The answer's row: wire bytes without the header."""


_NO_WRITES: Writes = []
"""Shared, so never changed."""


class Evaluated(NamedTuple):
    """A change after evaluation. ``body`` is None if there is nothing to log.

    A kernel makes most of them (``core/native``), so it knows the order of the fields.
    """

    outcome: Outcome
    stamp: int
    log_key: bytes = b""
    body: bytes | None = None
    writes: Writes = _NO_WRITES
    state: ShardState | None = None
    """Options that this record puts in force."""
    group: int = record.SINGLE


class Replayed(NamedTuple):
    """The effect of a log entry on the rows. ``valid`` is False for a void entry."""

    valid: bool
    writes: Writes
    log_key: bytes
