"""A standby's calls to the catalog and to the readers of logs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.tails import Tails

__all__ = ["StandbyLinks"]


@dataclass(frozen=True, slots=True)
class StandbyLinks:
    """The parts that a standby calls.

    ``tables`` returns the shards of a slot, parents before children. ``coming`` returns those
    that are moved to it. ``catalog_read`` reads the catalog to the end that the broker
    reports, ``catalog_proven`` to an end that an append proves. ``clock_s`` never goes back
    and runs during suspend; ``tails`` uses the same clock.
    """

    tails: Tails
    catalog_read: Callable[[], Awaitable[None]]
    catalog_proven: Callable[[], Awaitable[None]]
    tables: Callable[[int], Collection[tuple[Table, ShardRange]]]
    coming: Callable[[int], Collection[tuple[Table, ShardRange]]]
    table_known: Callable[[int], bool]
    clock_s: Callable[[], float]
