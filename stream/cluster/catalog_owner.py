"""The catalog on one worker: every worker follows it, the owner of slot 0 changes it.

The catalog is a shard of slot 0. Its owner holds that slot's claim, appends by the append
rule and answers once the record is durable. Changes are decided one at a time, each an
atomic batch in the catalog's log. A snapshot is appended now and then, and the log before
it trimmed.

A read of the log may end early: a deposed broker that does not know it continues to
answer. A worker that opens a slot proves the end by an append, see
``CatalogOwner.prove``. If the log lacks entries that were read from it, nothing is
changed or opened any more: see ``CatalogOwner.lost``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from rowtide.core.cluster.catalog import Catalog, Document, document_body, snapshot_body
from rowtide.core.records import record
from rowtide.core.values.errors import (
    Elsewhere,
    LogTrimmed,
    OutcomeUnknown,
    StoreError,
    Unavailable,
)
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.shared_work import SharedWork
from rowtide.stream.measures.clock import lease_clock
from rowtide.stream.shard.appender import Appender, LogShortened, read_known

__all__ = ["CATALOG_SLOT", "CatalogOwner", "Decide"]

logger = logging.getLogger(__name__)

SNAPSHOT_EVERY = 500
"""Number of entries after which a snapshot is due."""

FOLLOW_S = 1.0
"""Time for which one read of a follower waits for more entries."""

CONFIRM_S = 1.5
"""A follower reads the end of the log if no broker has confirmed it for this long.

With ``FOLLOW_S`` this stays below the age limit for rejecting an unknown key
(``core/protocol/authentication.py:ABSENT_S_MAX``), even under constant changes.
"""

READ_BYTES = 4 * 1024 * 1024
BACKOFF_S = 0.2

PROOF_S = 5.0
"""Time limit for proving the log's end; one append waits half as long for its answer."""

TURN_S = 10.0
"""Time for which a change waits for earlier ones: each is answered in milliseconds, if at all."""

NOWHERE = -1
"""The offset in a record that is to be void at any offset."""

CATALOG_SLOT = 0

Decide = Callable[[Catalog, int], Sequence[Document]]


class CatalogOwner:
    """The catalog and its log. ``clock_us`` gives Unix microseconds, ``clock_s`` never goes back.

    ``changed`` is called at each change of the catalog, before anything else may run. So
    no part that copies from the catalog works with an older one. ``tail`` is a second
    handle on the log: a follower's reads do not delay an append.
    """

    def __init__(
        self,
        log: Log,
        tail: Log,
        *,
        owner: bytes,
        clock_us: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
        clock_s: Callable[[], float] = lease_clock,
    ) -> None:
        self.catalog = Catalog()
        self.ready = asyncio.Event()
        """Set once the catalog has been read to the end that it had at the start."""
        self.lost = ""
        """Why nothing is changed or opened by this catalog; empty if nothing is lost.

        It lasts until the log again has the entries that were read, or this worker
        restarts.
        """
        self.taken_over = asyncio.Event()
        """Set when this worker has become the catalog's owner."""
        self.first_shard = 0
        """Number of the first shard id that was unused at that time."""
        self._appender = Appender(log, self._noop)
        self._log = log
        self._tail = tail
        self._owner = owner
        self._claim = -1
        self._owns = False
        """True if it was opened under ``_claim``, and no later claim was read."""
        self._clock_us = clock_us
        self._clock_s = clock_s
        self._changed = changed
        self._changing = asyncio.Lock()
        self._refreshing = asyncio.Lock()
        self._read_s = -math.inf
        self._confirmed_s = -math.inf
        self._snapshot_at = 0
        self._proofs = SharedWork()
        self._known: Entry | None = None
        """The last entry that was folded, while nothing was ``lost``."""

    @property
    def is_owner(self) -> bool:
        """True if this worker may change the catalog: it was opened here, and nothing is lost."""
        return self._owns and not self.lost

    @property
    def is_changing(self) -> bool:
        """True while a change runs: others may read it before we get the log's answer."""
        return self._changing.locked()

    async def open(self, claim: int) -> None:
        """Take the catalog over under ``claim``: read its log up to our own no-op.

        Raises ``Unavailable``, with the reason if the log lacks acknowledged entries.
        """
        async with self._changing:
            with self._losing():
                await self._open(claim)
            self.lost = ""
        self.taken_over.set()
        self.ready.set()

    async def _open(self, claim: int) -> None:
        self._owns = False
        asked_s = self._clock_s()
        start, end = await self._log.bounds()
        await self._require_known(self._known, end)
        self._claim = claim
        end = await self._appender.fence()
        at = max(start, self.catalog.applied + 1)
        self._snapshot_at = start
        self._replay(await self._appender.read(at, end))
        self._read_s = max(self._read_s, asked_s)
        self._owns = True
        self.first_shard = self.catalog.next_shard

    async def _require_known(self, known: Entry | None, end: int) -> None:
        """Raise ``LogShortened`` if the log, whose end is ``end``, no longer has ``known``."""
        if known is None:
            return
        if end <= known.offset:
            raise LogShortened(f"it ends at {end}, but entry {known.offset} was read")
        with suppress(LogTrimmed):
            if (await read_known(self._tail, known.offset, end))[0].value != known.value:
                raise LogShortened(f"entry {known.offset} is another one than was read")

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Stop changes of the catalog while its log lacks acknowledged entries, and log
        the reason.
        """
        try:
            yield
        except LogShortened as error:
            self.lost = f"{self._log.name} lost what it had acknowledged: {error}"
            logger.critical("catalog changes stopped on this worker: %s", self.lost)
            raise (OutcomeUnknown if error.unsettled else Unavailable)(self.lost) from error

    async def follow(self) -> None:
        """Fold all appended entries, our own and others', until cancelled."""
        while True:
            try:
                if not self.ready.is_set():
                    await self.refresh()
                    self.ready.set()
                try:
                    await self._follow_on()
                except LogTrimmed:
                    await self._restart()
            except StoreError as error:
                logger.debug("catalog: read failed, retrying: %s", error)
                await asyncio.sleep(BACKOFF_S)

    async def _follow_on(self) -> None:
        """Wait for the next entry. If none comes, a broker has confirmed the end."""
        if self.confirmation_age_s() > CONFIRM_S:  # Brokers were away, or changes are constant.
            await self.refresh()
        asked_s = self._clock_s()
        if not await self._take(self.catalog.applied + 1, FOLLOW_S):
            self._confirmed_s = max(self._confirmed_s, asked_s)
        elif self._is_snapshot_due():  # Only proofs, while nothing changes.
            async with self._turn():
                if self._is_snapshot_due():
                    await self._snapshot()

    def confirmation_age_s(self) -> float:
        """Return the age of the last confirmation that this worker has read every entry.

        It is weaker than ``read_age_s``: a leader that was just elected or is cut off may
        not know the newest entry. It costs nothing, because followers read all the time.
        """
        return self._clock_s() - max(self._confirmed_s, self._read_s)

    def read_age_s(self) -> float:
        """Return the age of this catalog: the time since the last request for the log's end."""
        return self._clock_s() - self._read_s

    async def refresh_since(self, age_s_max: float) -> None:
        """Refresh the catalog if it is older than that. Raises ``Unavailable``."""
        async with self._refreshing:
            if self.read_age_s() > age_s_max:
                await self.refresh()

    async def refresh(self) -> None:
        """Fold everything that is in the log now. Raises ``Unavailable``."""
        asked_s = self._clock_s()
        _, end = await self._tail.bounds()
        while self.catalog.applied + 1 < end:
            try:
                await self._take(self.catalog.applied + 1, 0.0)
            except LogTrimmed:
                await self._restart()
        self._read_s = max(self._read_s, asked_s)

    async def prove(self) -> None:
        """Fold everything that was in the log at some time since the call, under any leader.

        Appends a void record: all earlier entries lie before it. Callers that come before
        it is sent share it. Raises ``Unavailable`` if that fails, or the log lacks
        entries that were read.
        """
        await self._proofs.since(self._prove)

    async def _prove(self) -> None:
        asked_s, known = self._clock_s(), self._known
        last = await self._append_void()
        with self._losing():
            await self._require_known(known, last)
        self.lost = ""
        while (applied := self.catalog.applied) < last:
            try:
                await self._take(applied + 1, 0.0)
            except LogTrimmed:
                await self._restart()
            if self.catalog.applied <= applied:
                raise Unavailable(f"{self._tail.name} ends at {applied}, but {last} was written")
        self._read_s = max(self._read_s, asked_s)

    async def _append_void(self) -> int:
        """Append a void and unique record; return its offset."""
        stamp = self._clock_us()
        envelope = record.Envelope(NOWHERE, self._claim, self._owner, stamp, record.SINGLE)
        void = b"", record.encode_record(envelope, record.encode_body(record.NoOp()))
        clock = asyncio.get_running_loop().time
        until_s = clock() + PROOF_S
        while True:
            try:
                return await self._tail.append([void], deadline_s=PROOF_S / 2)
            except (OutcomeUnknown, Unavailable) as error:
                await self._tail.disconnect()
                if clock() > until_s:
                    raise Unavailable(f"cannot prove the catalog's end: {error}") from error
            await asyncio.sleep(BACKOFF_S)

    async def _take(self, offset: int, wait_s: float) -> bool:
        """Fold the entries from ``offset`` on; return True if there were any."""
        entries = await self._tail.read(offset, bytes_max=READ_BYTES, wait_s=wait_s)
        if not entries:
            return False  # A change that waits for its log must not delay this result.
        async with self._changing:
            self._fold([entry for entry in entries if entry.offset > self.catalog.applied])
        return True

    async def _restart(self) -> None:
        """Continue at the log's start: the snapshot there has what was trimmed."""
        start, _ = await self._tail.bounds()
        await self._take(start, 0.0)

    async def change(self, decide: Decide) -> None:
        """Apply what ``decide`` returns for the newest catalog and the change's commit stamp.

        ``decide`` may raise ``Rejected``; then nothing has changed. Its documents are
        applied together or not at all. It decides again if another worker's change came
        between.

        Raises ``Elsewhere`` if another worker owns the catalog. Raises ``Unavailable`` if
        the log lacks acknowledged entries, or an earlier change waits for it too long.
        Raises ``OutcomeUnknown`` if the outcome cannot be read, from a log that lacks
        entries or that a later owner has trimmed.
        """
        async with self._turn():
            while True:
                if self.lost:
                    raise Unavailable(self.lost)
                if not self.is_owner:
                    raise Elsewhere(CATALOG_SLOT)
                stamp = max(self._clock_us(), self.catalog.stamp + 1)
                documents = decide(self.catalog, stamp)
                if not documents or await self._append(documents, stamp):
                    break
            if self._is_snapshot_due():
                await self._snapshot()

    def _is_snapshot_due(self) -> bool:
        return self.is_owner and self.catalog.applied - self._snapshot_at > SNAPSHOT_EVERY

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for the running change of the catalog. Raises ``Unavailable``: nothing was
        decided.
        """
        try:
            async with asyncio.timeout(TURN_S):
                await self._changing.acquire()
        except TimeoutError as error:
            raise Unavailable("An earlier change waits for the catalog's log.") from error
        try:
            yield
        finally:
            self._changing.release()

    async def reserve_shards(self, count: int) -> list[str]:
        """Take shard ids that were never used; a crash before their use leaves a gap.

        A change that uses them calls ``require_reserved``.
        """
        taken: list[str] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            taken[:] = [f"s{catalog.next_shard + index}" for index in range(count)]
            return [catalog.counters(shards=count)]

        await self.change(decide)
        return taken

    def require_reserved(self, shard_ids: Iterable[str]) -> None:
        """Raise ``Unavailable`` if ids were taken before the last take-over of the catalog.

        The topic sweep deletes their logs as unused (``stream/cluster/topic_sweep.py``),
        so no shard may get such an id any more.
        """
        if any(int(shard_id[1:]) < self.first_shard for shard_id in shard_ids):
            raise Unavailable("The catalog was taken over meanwhile.")

    async def _append(self, documents: Sequence[Document], stamp: int) -> bool:
        bodies = [document_body(document) for document in documents]
        return await self._commit([(key, record.encode_body(body)) for key, body in bodies], stamp)

    async def _commit(self, bodies: Sequence[tuple[bytes, bytes]], stamp: int) -> bool:
        """Append an atomic batch; return True if it is valid. Folds every valid entry."""
        at = self.catalog.applied + 1
        last = len(bodies) - 1
        batch: list[tuple[bytes, bytes]] = []
        for index, (key, body) in enumerate(bodies):
            group = (record.FIRST if index == 0 else 0) | (record.LAST if index == last else 0)
            envelope = record.Envelope(at + index, self._claim, self._owner, stamp + index, group)
            batch.append((key, record.encode_record(envelope, body)))
        try:
            with self._losing():  # A record at another offset than the one that it names is void.
                appended = await self._appender.append(batch, at)
        except LogTrimmed as error:  # By a later owner, which may have read the batch as valid.
            raise OutcomeUnknown(f"change of the catalog at {at}: {error}") from error
        if appended.is_valid:
            self._fold([Entry(at + i, key, value) for i, (key, value) in enumerate(batch)])
            # A later owner in the next entries ends our ownership, but keeps what it read
            # as valid.
            self._fold(appended.entries)
        else:
            self._replay(appended.entries)
        return appended.is_valid

    async def _snapshot(self) -> None:
        """Write the whole catalog as one record and trim the log before it."""
        at = self.catalog.applied + 1
        body = record.encode_body(snapshot_body(self.catalog.documents()))
        stamp = max(self._clock_us(), self.catalog.stamp + 1)
        try:
            if await self._commit([(b"snapshot", body)], stamp):
                self._snapshot_at = at
                await self._log.trim(at)
        except StoreError as error:
            logger.warning("catalog: snapshot failed, retrying after a later change: %s", error)

    def _replay(self, entries: Sequence[Entry]) -> None:
        """Fold entries as the owner. Raises ``Unavailable`` if one is a later owner's."""
        if self._fold(entries):
            raise Unavailable("The catalog has a later owner; this one steps down.")

    def _fold(self, entries: Sequence[Entry]) -> bool:
        """Fold entries; return True if one has a later claim, which ends our ownership."""
        superseded = changed = False
        for entry in entries:
            valid = self.catalog.replay(entry.offset, entry.value)
            changed = changed or valid  # Void ones are proofs, which must not wake any waiter.
            if valid and record.decode_envelope(entry.value).claim > self._claim:
                superseded = True
                self._owns = False
        if entries:
            self._known = self._known if self.lost else entries[-1]
        if changed:
            self._changed()
        return superseded

    def _noop(self, at: int) -> tuple[bytes, bytes]:
        stamp = max(self._clock_us(), self.catalog.stamp + 1)
        envelope = record.Envelope(at, self._claim, self._owner, stamp, record.SINGLE)
        return b"", record.encode_record(envelope, record.encode_body(record.NoOp()))
