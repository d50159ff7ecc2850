"""Follows one shard under a lease: reads changes, passes them on, writes the checkpoint.

While rows are still to be read (``pending``), it goes page by page. A page is exact at a commit
stamp. First the stream is followed up to that stamp, and changes of rows read before are passed on.
Then the page is passed on. So after each step the receiver has the rows read so far as of that
stamp. Of rows not read yet only deletes are passed on: after a crash the receiver may have some.

While a batch is handled, the next one is read. Times are seconds of the given clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from rowtide.client.changes.leases import Leases, ReaderLease
from rowtide.client.changes.source import ChangePage, ChangeSource, RowPage
from rowtide.core.records.change import DELETE, Change
from rowtide.core.records.position import decode_position, encode_position
from rowtide.core.values.errors import (
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
    first_failure,
)
from rowtide.core.values.key_ranges import Range, holds

__all__ = [
    "Batch",
    "FollowerSettings",
    "Handle",
    "ResumingHandle",
    "ShardFollower",
    "Unfinished",
]

logger = logging.getLogger(__name__)

WAIT_S = 0.5
"""How long a read waits for a change. A handover may begin that much later."""

RETRY_S = 0.2


@dataclass(slots=True)
class Batch:
    """Changes of one shard in order; iterate it to get them.

    ``covers`` is set for a snapshot: the range that has exactly these rows as of ``stamp``.
    ``first`` is True until a batch was finished since the shard was taken. Other readers may have
    read the shard in between.
    """

    table: str
    shard_id: str
    changes: Sequence[Change]
    covers: Range | None = None
    stamp: int = 0
    first: bool = False

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)


Handle = Callable[[Batch], Awaitable[None]]
"""Returns when the batch is finished: then it need not come again."""

Resume = Callable[[ReaderLease], Awaitable[ReaderLease]]
"""Returns a lease that was just taken, with the position and the ranges at which to begin."""


class ResumingHandle:
    """A handler that stores its own position with what it makes of the changes.

    ``resume`` is called when a shard is taken, before its first batch. The checkpoint in the lease
    may be behind.
    """

    def __init__(self, handle: Handle, resume: Resume) -> None:
        self._handle = handle
        self.resume = resume

    async def __call__(self, batch: Batch) -> None:
        """Handle a batch."""
        await self._handle(batch)


class Unfinished(Exception):
    """Raised by a handler that gives the shard back while it has a batch.

    The first ``finished`` changes of the batch need not come again.
    """

    def __init__(self, finished: int = 0) -> None:
        super().__init__(finished)
        self.finished = finished


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """How shards are read.

    A shard of a crashed reader pauses for ``lease_s``; if it is too short, a busy event loop loses
    shards. ``checkpoint_s`` bounds what comes again after a crash; 0 writes one after each batch.
    ``batch_changes_max`` bounds each of the two batches per shard in memory, as do the limits of
    answers. With ``skips_rows`` only changes are of use: who would begin with the present rows
    begins with the oldest change. Otherwise a change whose row is read instead is lost.
    """

    lease_s: float = 5.0
    checkpoint_s: float = 1.0
    batch_changes_max: int = 1000
    skips_rows: bool = False

    def __post_init__(self) -> None:
        if self.lease_s < 0.5:
            raise ValueError(f"lease_s {self.lease_s} must be 0.5 at least")
        if not 0 <= self.checkpoint_s <= self.lease_s / 4:
            raise ValueError(f"checkpoint_s {self.checkpoint_s} must lie in [0, lease_s / 4]")
        if self.batch_changes_max < 1:
            raise ValueError(f"batch_changes_max {self.batch_changes_max} must be 1 at least")


class ShardFollower:
    """One shard under ``lease``, which was written at ``leased_s``."""

    def __init__(
        self,
        lease: ReaderLease,
        source: ChangeSource,
        leases: Leases,
        handle: Handle,
        settings: FollowerSettings,
        *,
        leased_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.lease = lease
        self.shard_id = lease.shard_id
        self._source = source
        self._leases = leases
        self._handle = handle
        self._settings = settings
        self._clock = clock
        self._leased_s = leased_s
        self._written_s = leased_s
        self._position = lease.position
        self._pending = lease.pending
        self._writing = asyncio.Lock()
        self._stopping = False
        self._first = True
        self._tasks = asyncio.TaskGroup()
        self._ahead: tuple[str, asyncio.Task[ChangePage | StoreError]] | None = None
        """The page that is read ahead, and its position."""

    @property
    def is_leased(self) -> bool:
        """True if the lease is certainly still ours."""
        return self._clock() - self._leased_s < self._settings.lease_s

    @property
    def is_released(self) -> bool:
        """True if we released the lease, with everything finished."""
        return not self.lease.owner

    @property
    def position(self) -> str:
        """Return the checkpoint that was written last."""
        return self.lease.position

    def stop(self) -> None:
        """Hand the shard over after the batch in hand."""
        self._stopping = True

    async def run(self) -> None:
        """Follow until the shard's end, until stopped, or until the lease is lost."""
        try:
            async with self._tasks:
                ended = await self._follow_shard()
                self._drop_ahead()
        except BaseExceptionGroup as group:
            raise first_failure(group) from group
        await self._leave(ended=ended)

    async def _follow_shard(self) -> bool:
        """Follow while the lease is held; return True if the shard ended."""
        ended = False
        resuming = isinstance(self._handle, ResumingHandle)
        while self.is_leased and not (ended or self._stopping):
            try:
                if resuming:
                    await self._resume()
                    resuming = False
                elif self._pending:
                    ended = await self._read_rows(self._pending[0])
                else:
                    ended = await self._follow(WAIT_S)
            except Unfinished:
                break
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("shard %s: %s", self.shard_id, error)
                await asyncio.sleep(RETRY_S)
        return ended

    async def _resume(self) -> None:
        """Begin where the handler's own state ends."""
        assert isinstance(self._handle, ResumingHandle), "asked only then"
        lease = await self._handle.resume(self.lease)
        self._position, self._pending = lease.position, lease.pending

    async def renew(self) -> None:
        """Renew the lease with the finished position. Raises ``StoreError``."""
        await self._write(owner=self.lease.owner, ended=False)

    async def _follow(self, wait_s: float) -> bool:
        """Pass on the next changes; return True if the shard ended there."""
        page = await self._next_page(wait_s)
        if page.changes:
            if page.following is not None:
                self._read_ahead(page.following, wait_s)
            try:
                await self._pass_on(page.changes)
            except Unfinished as unfinished:
                self._position = self._place_of(page.changes[unfinished.finished])
                raise
        self._position = page.following or self._position
        await self._checkpoint()
        return page.following is None

    async def _next_page(self, wait_s: float) -> ChangePage:
        """Return the page at the current position."""
        if self._ahead is not None and self._ahead[0] == self._position:
            (_, reading), self._ahead = self._ahead, None
            page = await reading
            if isinstance(page, StoreError):
                raise page
            return page
        self._drop_ahead()
        limit = self._settings.batch_changes_max
        return await self._source.read(self._position, limit=limit, wait_s=wait_s)

    def _read_ahead(self, position: str, wait_s: float) -> None:
        """Start to read the page after the one in hand."""

        async def read() -> ChangePage | StoreError:
            limit = self._settings.batch_changes_max
            try:
                return await self._source.read(position, limit=limit, wait_s=wait_s)
            except StoreError as error:
                return error  # Raised here, it would cancel the batch in hand.

        task = self._tasks.create_task(read(), name=f"read ahead {self.shard_id}")
        self._ahead = position, task

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].cancel()

    async def _read_rows(self, pending: Range) -> bool:
        """Pass on a page of rows as of a stamp, after all changes up to that stamp."""
        try:
            limit = self._settings.batch_changes_max
            page = await self._source.rows(self.shard_id, *pending, limit=limit)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            # The shard has ended. Its children have the rows.
            return await self._follow_unread(None)
        ended = await self._follow_unread(page.stamp)
        await self._pass_on_rows(page, pending)
        return ended

    async def _follow_unread(self, stamp: int | None) -> bool:
        """Follow up to a stamp, or with None to the shard's end; return True if the shard ended."""
        limit = self._settings.batch_changes_max
        while self.is_leased:
            page = await self._source.read(self._position, limit=limit, wait_s=0.0)
            changes = page.changes
            beyond = next((c for c in changes if stamp is not None and c.stamp > stamp), None)
            if beyond is not None:
                changes = [change for change in changes if change.stamp < beyond.stamp]
            await self._pass_on(
                [c for c in changes if c.kind == DELETE or not holds(self._pending, c.key_bytes)]
            )
            if beyond is not None:
                self._position = self._place_of(beyond)
                return False
            if page.following is None:
                return True
            self._position = page.following
            if page.at_end:
                if stamp is None:
                    await asyncio.sleep(RETRY_S)  # The source does not report the shard's end yet.
                return False
        raise Unfinished

    def _place_of(self, change: Change) -> str:
        """Return the position whose next change is ``change``."""
        at = decode_position(self._position)
        return encode_position(at._replace(offset=change.sequence))

    async def _pass_on_rows(self, page: RowPage, pending: Range) -> None:
        end = pending[1] if page.following is None else page.following
        covers = (pending[0], end)
        table = await self._source.table_name()
        rest = self._pending[1:]
        try:
            await self._hand_over(Batch(table, self.shard_id, page.rows, covers, page.stamp))
        except Unfinished as unfinished:
            if unfinished.finished:
                # Continue as if the page had ended there.
                following = page.rows[unfinished.finished].key_bytes
                self._pending = ((following, pending[1]), *rest)
            raise
        self._pending = rest if page.following is None else ((page.following, pending[1]), *rest)
        await self._checkpoint()

    async def _pass_on(self, changes: Sequence[Change]) -> None:
        if changes:
            await self._hand_over(Batch(changes[0].table.name, self.shard_id, changes))

    async def _hand_over(self, batch: Batch) -> None:
        """Have a batch finished. Raises ``Unfinished`` if the lease ended during the read.

        A renewal in progress may bring the lease back, so no change may be skipped meanwhile.
        """
        if not self.is_leased:
            raise Unfinished
        batch.first = self._first
        await self._handle(batch)
        self._first = False

    async def _checkpoint(self) -> None:
        """Write the checkpoint if it is due. A failure is not raised: a renewal retries it.

        What was passed on is finished. Raising the failure would pass a shard's end on again.
        """
        moved = self._position != self.lease.position or self._pending != self.lease.pending
        if moved and self._clock() - self._written_s >= self._settings.checkpoint_s:
            try:
                await self._write(owner=self.lease.owner, ended=False)
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("shard %s: checkpoint not written, retried: %s", self.shard_id, error)

    async def _leave(self, *, ended: bool) -> None:
        """Release the lease: its children can be read now, or another reader continues."""
        while self.is_leased:
            try:
                await self._write(owner="", ended=ended)
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("shard %s: %s", self.shard_id, error)
                await asyncio.sleep(RETRY_S)
            if not self.lease.owner:
                return

    async def _write(self, *, owner: str, ended: bool) -> None:
        """Write the row. If another reader has changed it, keep that row instead."""
        async with self._writing:
            if self.is_released or not self.is_leased:
                return  # A renewal that waited for the lock must not undo a release.
            old, sent_s = self.lease, self._clock()
            new = old._replace(
                owner=owner,
                wanted="" if ended else old.wanted,
                position=self._position,
                pending=self._pending,
                ended=ended,
            )
            now = await self._leases.change(old, new)
            if now == new._replace(counter=old.counter + 1):
                self._leased_s = self._written_s = sent_s
            elif now.owner != old.owner:
                self._leased_s = float("-inf")  # Lost.
            self.lease = now
