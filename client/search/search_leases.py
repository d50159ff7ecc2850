"""The positions of an index, stored with its rows.

A reader of changes hands a batch over, and then moves its position. Here the batch waits in memory
until the position moves, and both are one transaction of the index. A position that moves past
nothing, and a lease that is renewed, cost none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from rowtide.client.changes.leases import START, MemoryLeases, ReaderLease
from rowtide.client.search.search_file import SearchFile, SearchRow
from rowtide.core.values.key_ranges import Range

__all__ = ["SearchLeases", "StagedRows"]

StagedRows = tuple[Sequence[SearchRow], Range | None, int]
"""Rows, and for a page of a snapshot the range that has no others, as of a commit stamp."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]
"""Awaits a function that runs in the thread of the file."""


class SearchLeases(MemoryLeases):
    """The positions of ``file``. Its lock admits one process, so leases need not be stored.

    ``on_move`` is called when a position was stored.
    """

    def __init__(
        self,
        file: SearchFile,
        positions: Mapping[str, ReaderLease],
        in_thread: InThread,
        on_move: Callable[[], None],
    ) -> None:
        super().__init__("search")
        self._file = file
        self._in_thread = in_thread
        self._on_move = on_move
        self._rows = dict(positions)
        self._staged: dict[str, list[StagedRows]] = {}

    @property
    def positions(self) -> Mapping[str, ReaderLease]:
        """How far each shard is read, as stored."""
        return self._rows

    def stage(self, shard_id: str, rows: StagedRows) -> None:
        """Keep rows until the shard's position moves past them.

        The reader moves its position in the same turn of the event loop in which this is called.
        """
        self._staged.setdefault(shard_id, []).append(rows)

    async def create(self, lease: ReaderLease) -> ReaderLease:
        """Create a row, see ``Leases.create``."""
        if lease.shard_id not in self._rows:
            await self._in_thread(lambda: self._file.commit((), lease))
        return await super().create(lease)

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, see ``Leases.change``."""
        if self._rows[old.shard_id] != old:
            return self._rows[old.shard_id]
        staged = self._staged.pop(old.shard_id, [])
        if staged or _position_of(old) != _position_of(new):
            await self._in_thread(lambda: self._file.commit(staged, new))
            now = await super().change(old, new)
            self._on_move()
            return now
        return await super().change(old, new)

    async def remove(self, lease: ReaderLease) -> None:
        """Remove a row, see ``Leases.remove``."""
        if self._rows.get(lease.shard_id) == lease and lease.shard_id != START:
            await self._in_thread(lambda: self._file.forget(lease.shard_id))
        await super().remove(lease)


def _position_of(lease: ReaderLease) -> tuple[object, ...]:
    return lease.position, lease.pending, lease.ended
