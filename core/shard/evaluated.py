"""What a shard returns of a change that it evaluated, and of an entry that it replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.rows.fold import RowAddress, Writes
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.cell import Cell

__all__ = ["Evaluated", "Replayed", "Resolved"]


@dataclass(slots=True)
class Resolved:
    """A change with nothing left to decide: key, versions and values are final.

    It can be folded and logged whenever its turn comes, with the same result for its row as long
    as nobody else has written that row.
    """

    kind: int
    key: list[bytes]
    encoded_key: bytes
    at: RowAddress
    cells: Sequence[Cell]
    read_units: int
    returned: bytes
    """The answer's row: wire bytes without header."""


@dataclass(slots=True)
class Evaluated:
    """A change after evaluation. ``body`` is None where the log has nothing to learn."""

    outcome: Outcome
    stamp: int
    log_key: bytes = b""
    body: bytes | None = None
    writes: Writes = field(default_factory=list)
    state: ShardState | None = None
    """Options that take effect with this record."""
    group: int = record.SINGLE


class Replayed(NamedTuple):
    """What an entry of the log does to the rows. ``valid`` is False for a void entry."""

    valid: bool
    writes: Writes
    log_key: bytes
