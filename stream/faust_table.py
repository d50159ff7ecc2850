"""The Faust table ``rows``: one partition per slot, kept in stores of our own.

Faust assigns the partitions and feeds standbys. It does not recover the slots served here: it
reads one event at a time and waits for offsets that transaction markers occupy, so a slot's
owner reads the changelog itself, in batches, after its claim. Faust is therefore told that a
served slot has nothing left to read.

Offsets: Faust's *persisted offset* is the last one applied; ``changelog_position`` is the next
one to read, one higher.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from faust.stores.base import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.tables.table import Table

__all__ = ["PartitionStore", "RowsTable", "SlotTableManager", "StoreFor"]


logger = logging.getLogger("faust")


STANDBY_EVENTS = 1
"""How many events a standby applies together. Faust lets fewer wait until the next rebalance."""


class PartitionStore(Protocol):
    """The local rows of one slot, as far as the changelog is concerned."""

    def changelog_position(self) -> int | None:
        """Next changelog offset to read; None when nothing was read yet."""

    def apply_changelog(self, entries: Iterable[tuple[int, bytes, bytes | None]]) -> None:
        """Apply (offset, key, value) in order and advance the position with them."""


StoreFor = Callable[[int], PartitionStore | None]
"""Finds the open store of a slot; None when it is not open here."""


class _SlotStores(Store):  # type: ignore[misc]
    """Hands each partition's changelog entries to its slot's store."""

    logger = logger

    def __init__(self, table: RowsTable, store_for: StoreFor) -> None:
        super().__init__("rowtide://", table.app, table, table_name=table.name)
        self._store_for = store_for

    def persisted_offset(self, tp: Any) -> int | None:
        """Last changelog offset that the slot's store holds."""
        store = self._store_for(tp.partition)
        position = None if store is None else store.changelog_position()
        return None if position is None else position - 1

    def set_persisted_offset(self, tp: Any, offset: int) -> None:
        """Refuse: Faust would call this for its own sends, and it has none."""
        raise AssertionError(f"only a flush advances {tp}, not Faust (offset {offset})")

    def apply_changelog_batch(
        self, batch: Iterable[Any], to_key: Callable[..., Any], to_value: Callable[..., Any]
    ) -> None:
        """Apply a standby's events: raw bytes, one call per slot, in offset order."""
        slots: dict[int, list[tuple[int, bytes, bytes | None]]] = defaultdict(list)
        for event in batch:
            message = event.message
            slots[message.partition].append((message.offset, message.key, message.value))
        for slot, entries in slots.items():
            store = self._store_for(slot)
            if store is None:
                raise LookupError(f"slot {slot} has changelog entries but no open store")
            store.apply_changelog(entries)

    def reset_state(self) -> None:
        """Keep everything: a store is thrown away by its owner only."""

    async def backup_partition(self, tp: Any, *_: Any, **__: Any) -> None:
        """Refuse: the logs and the changelog are the backup."""
        raise NotImplementedError

    def restore_backup(self, tp: Any, *_: Any, **__: Any) -> None:
        """Refuse: the logs and the changelog are the backup."""
        raise NotImplementedError


class RowsTable(Table):  # type: ignore[misc]
    """The table, with keys and values as bytes."""

    logger = logger

    def __init__(self, app: Any, *, slots: int, store_for: StoreFor) -> None:
        super().__init__(
            app,
            name="rows",
            partitions=slots,
            key_type=bytes,
            value_type=bytes,
            standby_buffer_size=STANDBY_EVENTS,
            beacon=app.tables.beacon,
        )
        self._stores = _SlotStores(self, store_for)

    def _new_store(self) -> _SlotStores:
        return self._stores


class _NoActiveRecovery(Recovery):  # type: ignore[misc]
    """Faust's recovery with nothing to do for the slots served here."""

    logger = logger

    async def _build_highwaters(
        self, consumer: Any, tps: set[Any], destination: Any, title: str
    ) -> None:
        if title != "active":
            await super()._build_highwaters(consumer, tps, destination, title)
            return
        destination.clear()
        self._set_nothing_read(tps, destination)

    async def _build_offsets(
        self, consumer: Any, tps: set[Any], destination: Any, title: str
    ) -> None:
        if title != "active":
            await super()._build_offsets(consumer, tps, destination, title)
            return
        self._set_nothing_read(tps, destination)

    @staticmethod
    def _set_nothing_read(tps: set[Any], destination: Any) -> None:
        for tp in tps:  # Not update(): the destination is a Counter, which would add.
            destination[tp] = -1

    async def _seek_offsets(self, consumer: Any, tps: set[Any], offsets: Any, title: str) -> None:
        if title != "active":
            await super()._seek_offsets(consumer, tps, offsets, title)


class SlotTableManager(TableManager):  # type: ignore[misc]
    """Starts the table at once: Faust waits a second for agents, and there are none."""

    logger = logger
    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _NoActiveRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
