"""The catalog as one worker knows it, for slots, their copies and requests."""

from __future__ import annotations

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Credential
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.cluster.catalog_owner import CatalogOwner

__all__ = ["CatalogView"]


class CatalogView:
    """The catalog that ``owner`` follows, or owns."""

    def __init__(self, owner: CatalogOwner) -> None:
        self._owner = owner

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it."""
        return self._owner.catalog

    async def prove(self) -> None:
        """Wait until this worker knows the catalog that was the newest at the time of the call."""
        await self._owner.ready.wait()
        await self._owner.prove()

    async def read(self) -> None:
        """Read the catalog to the end that the broker reports."""
        await self._owner.ready.wait()
        await self._owner.refresh()

    def tables_of(self, slot: int) -> list[tuple[Table, ShardRange]]:
        """Return the open shards of a slot, each with its table."""
        shards = self.catalog.shards.values()
        return [
            (table, shard) for table, shard in shards if shard.slot == slot and not shard.sealed_us
        ]

    def is_known(self, table_id: int) -> bool:
        """True if a table may exist. Ids only grow, so the catalog may still add a higher one."""
        return table_id in self.catalog.tables_by_id or table_id >= self.catalog.next_table_id

    def credential(self, access_key_id: str) -> Credential | None:
        """Return an access key, None if there is none."""
        return self.catalog.credentials.get(access_key_id)

    def has_instance(self, name: str) -> bool:
        """True if an instance exists, by its name in lower case."""
        return name in self.catalog.instances

    def hop_secret(self) -> bytes | None:
        """Return the secret that workers share; None before it is known."""
        return self.catalog.hop_secret
