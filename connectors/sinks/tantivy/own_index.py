"""An index that a search updates itself, just before it runs.

The first search reads the rows of the table, and later ones only the changes. This needs
no connector and writes nothing to the server: its positions are in the index's folder
(``FolderLeases``). So any user who may read a table may search it, with an own index on
any machine.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import MemoryLeases, ReaderLease
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Refused, SinkBatch
from rowtide.connectors.runtime.place import table_shape
from rowtide.connectors.runtime.row_making import RowMaker
from rowtide.connectors.sinks.tantivy.sink import TantivySink
from rowtide.connectors.verify.table_pages import TablePages
from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable, first_failure
from rowtide.core.values.key_ranges import Ranges

__all__ = ["FolderLeases", "OwnIndex"]

LOCK_LOOK_S = 0.1
FOR_EVER_S = 1e9


class FolderLeases(MemoryLeases):
    """The positions of a folder's index, in a file. The folder's lock admits one process.

    A file that can't be read counts as absent: the index starts again with the rows.
    """

    def __init__(self, path: Path) -> None:
        super().__init__("search")
        self._path = path
        try:
            kept = [_lease(*fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            kept = []
        self._rows = {lease.shard_id: lease for lease in kept}

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Create a row, see ``Leases.create``."""
        made = await super().create(lease)
        self._keep()
        return made

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, see ``Leases.change``."""
        now = await super().change(old, new)
        self._keep()
        return now

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row, see ``Leases.remove``."""
        await super().remove(lease)
        self._keep()

    def _keep(self) -> None:
        draft = self._path.with_suffix(".draft")
        rows = [
            [
                lease.shard_id,
                lease.position,
                [[a.hex(), b.hex()] for a, b in lease.pending],
                lease.ended,
            ]
            for lease in self._rows.values()
        ]
        draft.write_text(json.dumps(rows), encoding="utf-8")
        os.replace(draft, self._path)


def _lease(
    shard_id: str, position: str, pending: Sequence[Sequence[str]], ended: object
) -> ReaderLease:
    """Return a stored row without its owner, which has ended."""
    ranges: Ranges = tuple((bytes.fromhex(a), bytes.fromhex(b)) for a, b in pending)
    return ReaderLease(shard_id, position=position, pending=ranges, ended=bool(ended))


class OwnIndex:
    """The index of ``table`` in ``folder``. ``on_progress`` gets the number of indexed rows."""

    def __init__(
        self,
        endpoint: Endpoint,
        table: str,
        folder: Path,
        language: str,
        on_progress: Callable[[int], None],
    ) -> None:
        self.refused: list[Refused] = []
        """Rows that could not be read. Searches do not find them."""
        self._api = ApiSource(endpoint, table)
        self._endpoint = endpoint
        self._table = table
        self._folder = folder
        self._language = language
        self._on_progress = on_progress
        self._rows = 0
        self._makers: dict[str, RowMaker] = {}

    async def update(self, *, wait_s: float) -> None:
        """Bring the index up to the table. Wait up to ``wait_s`` for another process.

        Searches then find what was written before the call. Raises ``StoreError``.
        """
        await self._api.stream()
        shape = await table_shape(self._endpoint, self._table)
        async with asyncio.timeout(wait_s) as waiting:
            while True:
                sink = TantivySink(self._folder, language=self._language, refresh_s=60)
                try:
                    await sink.open(shape)
                    break
                except Unavailable:
                    await sink.close()
                    await asyncio.sleep(LOCK_LOOK_S)
            waiting.reschedule(None)
        try:
            await self._catch_up(sink)
        finally:
            await sink.close()

    async def _catch_up(self, sink: TantivySink) -> None:
        positions = self._folder / "positions.json"
        try:
            await self._follow(sink, FolderLeases(positions))
        except LogTrimmed:
            # The log was trimmed past the position. Pages of rows also show what was
            # deleted.
            positions.unlink()
            self._makers.clear()
            await self._follow(sink, FolderLeases(positions))

    async def _follow(self, sink: TantivySink, leases: FolderLeases) -> None:
        async def handle(batch: Batch) -> None:
            maker = self._makers.setdefault(batch.shard_id, RowMaker(self._api, every_change=False))
            async with maker.telling(batch) as made:
                await sink.apply(
                    SinkBatch(batch.table, batch.shard_id, made.rows, batch.covers, batch.stamp)
                )
            self.refused += made.refused
            self._rows += len(made.rows)
            self._on_progress(self._rows)

        settings = FollowerSettings(checkpoint_s=0.0)
        worker = ChangeWorker(self._api, leases, handle, begin="rows", settings=settings)
        pages = TablePages(self._api, leases, wait_s=FOR_EVER_S)
        try:
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(worker.run(), name="follow")
                await pages.open()
                # A batch in progress is repeated by the next search.
                following.cancel()
        except BaseExceptionGroup as group:
            failure = first_failure(group)
            raise failure from (None if isinstance(failure, StoreError) else group)
