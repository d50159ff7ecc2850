"""Whom a standby asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.tails import Tails

__all__ = ["StandbyLinks"]


@dataclass(frozen=True, slots=True)
class StandbyLinks:
    """Where a standby learns what its slot has.

    ``tables`` returns the shards of a slot, parents before children, ``coming`` those that are
    moved to it. ``catalog_read`` reads the catalog to its present end, as far as the broker that is
    asked reports, ``catalog_proven`` to an end that an append proves. ``clock_s`` never goes back
    and runs during suspend; it is that of ``tails``.
    """

    tails: Tails
    catalog_read: Callable[[], Awaitable[None]]
    catalog_proven: Callable[[], Awaitable[None]]
    tables: Callable[[int], Collection[tuple[Table, ShardRange]]]
    coming: Callable[[int], Collection[tuple[Table, ShardRange]]]
    table_known: Callable[[int], bool]
    clock_s: Callable[[], float]
