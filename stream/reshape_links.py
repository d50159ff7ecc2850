"""What a slot asks of the catalog about shards that are split, merged or moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rowtide.core.reshape import Reshape, Sealed
from rowtide.core.schema import ShardRange, Table

__all__ = ["ReshapeLinks"]


class ReshapeLinks(Protocol):
    """The catalog's side of it. All calls but the first three raise ``Unavailable`` and others."""

    def planned(self, slot: int) -> Sequence[Reshape]:
        """Return the changes whose parents are a slot's."""
        ...

    def is_planned(self, reshape: Reshape) -> bool:
        """Say whether a change is still to be done."""
        ...

    def ended(self, slot: int) -> Sequence[tuple[Table, ShardRange]]:
        """Return a slot's shards that have ended and are not forgotten, parents first."""
        ...

    async def prepare(self, reshape: Reshape) -> None:
        """Make the children's logs exist."""
        ...

    async def finish(self, reshape: Reshape, seals: Mapping[str, Sealed]) -> None:
        """Let the children take the parents' place, whose ``seals`` stand."""
        ...

    async def forget(self, shard: ShardRange) -> None:
        """Remove an ended shard with its log: nobody needs it any more."""
        ...
