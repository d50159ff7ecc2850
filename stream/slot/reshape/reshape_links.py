"""What a slot asks of the catalog about shards that are split, merged or moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rowtide.core.shard.reshape import Reshape, Sealed
from rowtide.core.values.schema import ShardRange, Table

__all__ = ["ReshapeLinks"]


class ReshapeLinks(Protocol):
    """The catalog's side. The ``async`` calls raise ``Unavailable`` and ``OutcomeUnknown``."""

    async def catalog_read(self) -> None:
        """Return once the catalog was read to what was its end at the start."""
        ...

    def planned(self, slot: int) -> Sequence[Reshape]:
        """Return the changes whose parents are a slot's."""
        ...

    def plan(self, reshape_id: str) -> Reshape | None:
        """Return a change that is still to be done, as it is planned now."""
        ...

    def ended(self, slot: int) -> Sequence[tuple[Table, ShardRange]]:
        """Return a slot's shards that have ended and are not forgotten, parents first."""
        ...

    def arriving(self, slot: int) -> Sequence[tuple[Table, ShardRange]]:
        """Return the shards that are being moved to a slot."""
        ...

    def is_arriving(self, shard: ShardRange) -> bool:
        """True if a shard is still being moved to its slot."""
        ...

    def knows(self, shard_id: str) -> bool:
        """True if a shard belongs or belonged to a table. A plan that was undone does not count."""
        ...

    def held(self, slot: int, number: int) -> Sequence[ShardRange]:
        """Return what a slot has, or is getting, of a table or an index, by its number."""
        ...

    async def prepare(self, reshape: Reshape) -> None:
        """Make the children's logs exist."""
        ...

    async def begin_copy(self, reshape: Reshape, claim: int) -> Reshape:
        """Return a move as it is from now on: into an empty log, by the owner of that claim."""
        ...

    async def received(self, shard: ShardRange) -> int:
        """Return the last offset that the slot of a shard on its way has folded; -1 for none."""
        ...

    async def finish(self, reshape: Reshape, seals: Mapping[str, Sealed]) -> None:
        """Let the children take the parents' place, whose ``seals`` stand."""
        ...

    async def forget(self, shard: ShardRange) -> None:
        """Remove an ended shard with its log: nobody needs it any more."""
        ...
