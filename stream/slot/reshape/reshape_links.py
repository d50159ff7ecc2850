"""A slot's calls to the catalog about shards that are split, merged or moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rowtide.core.shard.reshape import Reshape, Sealed
from rowtide.core.values.schema import ShardRange, Table

__all__ = ["ReshapeLinks"]


class ReshapeLinks(Protocol):
    """The catalog's side. The ``async`` calls raise ``Unavailable`` and ``OutcomeUnknown``."""

    async def catalog_read(self) -> None:
        """Wait until the catalog was read to the end that it had at the start."""
        ...

    def list_planned(self, slot: int) -> Sequence[Reshape]:
        """Return the changes whose parents are in a slot."""
        ...

    def plan(self, reshape_id: str) -> Reshape | None:
        """Return a change that is still to be done, with its present plan."""
        ...

    def list_ended(self, slot: int) -> Sequence[tuple[Table, ShardRange]]:
        """Return a slot's ended shards that still have a log, parents first."""
        ...

    def arriving(self, slot: int) -> Sequence[tuple[Table, ShardRange]]:
        """Return the shards that are being moved to a slot."""
        ...

    def is_arriving(self, shard: ShardRange) -> bool:
        """True if a shard is still being moved to its slot."""
        ...

    def is_known(self, shard_id: str) -> bool:
        """True if a shard is or was part of a table. An undone plan does not count."""
        ...

    def list_held(self, slot: int, number: int) -> Sequence[ShardRange]:
        """Return a slot's present and coming shards of a table or an index, by its number."""
        ...

    async def prepare(self, reshape: Reshape) -> None:
        """Create the children's logs."""
        ...

    async def begin_copy(self, reshape: Reshape, claim: int) -> Reshape:
        """Return the present plan of a move: into an empty log, by the owner with that claim."""
        ...

    async def find_received(self, shard: ShardRange) -> int:
        """Return the last offset that the slot of an arriving shard has folded; -1 for none."""
        ...

    async def finish(self, reshape: Reshape, seals: Mapping[str, Sealed]) -> None:
        """Put the children in the parents' place; ``seals`` are the parents' durable seals."""
        ...

    async def forget(self, shard: ShardRange) -> None:
        """Remove an ended shard and its log, which no reader needs any more."""
        ...
