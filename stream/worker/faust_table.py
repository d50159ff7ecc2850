"""The Faust table ``rows``: one partition per slot, in stores that Faust does not see.

Faust divides the partitions and reads none of them. Its recovery takes one event at a
time and waits for offsets that hold transaction markers. A slot's owner and the workers
with its copies read the changelog themselves, in batches. Faust sees nothing left to
read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from faust.stores.base import Store
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.tables.table import Table

__all__ = ["RowsTable", "SlotTableManager"]


logger = logging.getLogger("faust")


class _NoStore(Store):  # type: ignore[misc]
    """Takes the place of the slots' stores, which Faust does not know."""

    logger = logger

    def __init__(self, table: RowsTable) -> None:
        super().__init__("rowtide://", table.app, table, table_name=table.name)

    def persisted_offset(self, tp: Any) -> int | None:
        """Return None: Faust has no offset."""
        return None

    def set_persisted_offset(self, tp: Any, offset: int) -> None:
        """Raise: Faust would call this for its own sends, and it has none."""
        raise AssertionError(f"only a flush advances {tp}, not Faust (offset {offset})")

    def apply_changelog_batch(self, batch: Iterable[Any], *_: Any) -> None:
        """Raise: Faust reads no changelog."""
        raise AssertionError(f"Faust has read a changelog: {batch}")

    def reset_state(self) -> None:
        """Keep everything: only its owner deletes a store."""

    async def backup_partition(self, tp: Any, *_: Any, **__: Any) -> None:
        """Raise: the logs and the changelog are the backup."""
        raise NotImplementedError

    def restore_backup(self, tp: Any, *_: Any, **__: Any) -> None:
        """Raise: the logs and the changelog are the backup."""
        raise NotImplementedError


class RowsTable(Table):  # type: ignore[misc]
    """The table, with keys and values as bytes."""

    logger = logger

    def __init__(self, app: Any, *, slots: int) -> None:
        super().__init__(
            app,
            name="rows",
            partitions=slots,
            key_type=bytes,
            value_type=bytes,
            beacon=app.tables.beacon,
        )
        self._stores = _NoStore(self)

    def _new_store(self) -> _NoStore:
        return self._stores


class _NoRecovery(Recovery):  # type: ignore[misc]
    """Faust's recovery with nothing to do."""

    logger = logger

    async def _build_highwaters(
        self, consumer: Any, tps: set[Any], destination: Any, title: str
    ) -> None:
        destination.clear()
        self._set_nothing_read(tps, destination)

    async def _build_offsets(
        self, consumer: Any, tps: set[Any], destination: Any, title: str
    ) -> None:
        self._set_nothing_read(tps, destination)

    @staticmethod
    def _set_nothing_read(tps: set[Any], destination: Any) -> None:
        for tp in tps:  # Not update(): the destination is a Counter, which would add.
            destination[tp] = -1

    async def _seek_offsets(self, consumer: Any, tps: set[Any], offsets: Any, title: str) -> None:
        """Seek nowhere."""


class SlotTableManager(TableManager):  # type: ignore[misc]
    """Starts the table at once: Faust waits a second for agents, and there are none."""

    logger = logger
    _recovery: Recovery | None

    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _NoRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
