"""Finds the parts that a request names: its table, and the open shard that has a key."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.values import key
from rowtide.core.values.errors import Elsewhere, NotBuilt, Unavailable, invalid, no_table
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import LOCAL, ShardRange, Table, check_table_name
from rowtide.stream.api.row_requests import check_key_alone
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.slot import Slot

__all__ = ["Directory"]


class Directory:
    """The catalog and this worker's slots, as requests see them.

    ``clock_us`` gives Unix microseconds; it is the one clock of requests and shards.
    """

    def __init__(
        self,
        catalog: Catalog,
        slots: Mapping[int, Slot],
        limits: Limits,
        clock_us: Callable[[], int],
        consumption: Consumption | None = None,
    ) -> None:
        self.catalog = catalog
        self.limits = limits
        self.clock_us = clock_us
        self.consumption = consumption or Consumption(time.time)
        self._slots = slots
        self._full: str | None = None

    def learn_free_bytes(self, free: int, least: int) -> None:
        """Record the free bytes of the disk; below ``least``, writes are rejected."""
        self._full = None
        if free < least:
            self._full = f"The disk is almost full: {free} bytes free, {least} required."

    def require_space(self) -> None:
        """Raise ``Unavailable`` while the disk has too few free bytes for writes."""
        if self._full is not None:
            raise Unavailable(self._full, "OTSServerUnavailable")

    def table(self, instance: str, name: str) -> Table:
        """Return a table. Raises OTSParameterInvalid for its name, OTSObjectNotExist."""
        table = self.catalog.tables.get((instance, name))
        if table is None:
            check_table_name(name, self.limits)
            raise no_table()
        return table

    def find_table_for_rows(
        self, instance: str, name: str, *, read: int = 0, write: int = 0
    ) -> Table:
        """Return the table that a row operation names; a missing table costs units."""
        table = self.catalog.tables.get((instance, name))
        if table is None:
            check_table_name(name, self.limits)
            self.consumption.count_missing(instance, read=read, write=write)
            raise no_table()
        return table

    def read_table(self, instance: str, name: str, *keys: bytes) -> Table:
        """Return the table that a read names with these keys.

        If there is none, an error in a key itself is reported first.
        """
        if (instance, name) not in self.catalog.tables:
            check_table_name(name, self.limits)
            for buffer in keys:
                check_key_alone(buffer, self.limits)
        return self.find_table_for_rows(instance, name, read=1)

    def check_index_read(self, table: Table, *, within_transaction: bool = False) -> None:
        """Raise OTSParameterInvalid if a local index cannot be read: not built yet, or not here."""
        if not table.main:
            return
        index = self.catalog.tables_by_id[table.main].index(table.name)
        if index is None or index.kind != LOCAL:
            return
        if index.building:
            raise NotBuilt
        if within_transaction:
            raise invalid("Disallow read local index")

    def owner(self, table: Table, row: Sequence[tuple[bytes, bytes]]) -> ShardOwner:
        """Return the shard that has a row. The partition key alone decides."""
        shards = table.shards
        if len(shards) == 1:
            return self.shard(shards[0])
        return self.shard(self.catalog.shard_for(table, key.encode([row[0][1]])))

    def shard(self, shard: ShardRange) -> ShardOwner:
        """Return an open shard. Raises ``Unavailable``."""
        slot = self._slots.get(shard.slot)
        if slot is None or slot.is_foreign:
            raise Elsewhere(shard.slot)
        return slot.owner(shard.shard_id)

    def find_followable(self, shard: ShardRange) -> ShardOwner:
        """Return a shard whose log may be read, open or ended. Raises ``Unavailable``."""
        return self.slot(shard.slot).find_followable(shard.shard_id)

    def has_slot(self, number: int) -> bool:
        """True if this worker has a slot."""
        slot = self._slots.get(number)
        return slot is not None and not slot.is_foreign

    def slots(self) -> list[Slot]:
        """Return this worker's slots, open or not."""
        return list(self._slots.values())

    def slot(self, number: int) -> Slot:
        """Return an open slot. Raises ``Unavailable``."""
        slot = self._slots.get(number)
        if slot is None or slot.is_foreign:
            raise Elsewhere(number)
        return slot
