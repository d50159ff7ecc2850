"""The catalog on one worker: every worker follows it, the owner of slot 0 changes it.

It is a shard of slot 0: its owner holds that slot's claim, appends by the append rule and
answers after the record stands; changes are decided one at a time, each an atomic batch in the
catalog's log. A snapshot is appended now and then, and the log before it trimmed.

What is read of the log may end early: a broker that was deposed, and does not know it, goes on
answering. Who opens a slot proves the end by an append, see ``CatalogOwner.prove``. Where the log
lacks what was read of it nothing is changed, or opened, any more: see ``CatalogOwner.lost``.
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
"""Entries after which a snapshot is due."""

FOLLOW_S = 1.0
"""How long one read of a follower waits for more."""

TOLD_S = 1.5
"""Who follows, and has not been told for so long that nothing is left to read, asks for the end.

With ``FOLLOW_S`` it stays below the age at which an unknown key is called unknown no more
(``core/protocol/authentication.py:ABSENT_S_MAX``), also where one change comes upon the other.
"""

READ_BYTES = 4 * 1024 * 1024
BACKOFF_S = 0.2

PROOF_S = 5.0
"""How long it is tried to prove the log's end; one append waits half as long for its answer."""

TURN_S = 10.0
"""For so long a change waits for those before it: each has its answer in milliseconds, if any."""

NOWHERE = -1
"""The offset that a record names which is to be void wherever it stands."""

CATALOG_SLOT = 0

Decide = Callable[[Catalog, int], Sequence[Document]]


class CatalogOwner:
    """The catalog and its log. ``clock_us`` gives Unix microseconds, ``clock_s`` never goes back.

    ``changed`` is called whenever the catalog has changed, before anything else may run: whoever
    keeps something of the catalog never works by an older one. ``tail`` is a second handle on the
    log: whoever follows does not stand in an append's way.
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
        """Set once the catalog has been read to what was its end at the start."""
        self.lost = ""
        """Why nothing is changed, or opened, by what was read here; empty where nothing is amiss.

        It lasts until the log has again what was read of it, or this worker has started anew.
        """
        self.taken_over = asyncio.Event()
        """Set when this worker has come to own the catalog."""
        self.first_shard = 0
        """Number of the first shard id that nobody had taken by then."""
        self._appender = Appender(log, self._noop)
        self._log = log
        self._tail = tail
        self._owner = owner
        self._claim = -1
        self._owns = False
        """Whether it was opened under ``_claim``, and no later claim was read."""
        self._clock_us = clock_us
        self._clock_s = clock_s
        self._changed = changed
        self._changing = asyncio.Lock()
        self._refreshing = asyncio.Lock()
        self._read_s = -math.inf
        self._told_s = -math.inf
        self._snapshot_at = 0
        self._proofs = SharedWork()
        self._known: Entry | None = None
        """The last entry that was folded, while nothing was ``lost``."""

    @property
    def owning(self) -> bool:
        """Whether this worker may change the catalog: it was opened here, and lacks nothing."""
        return self._owns and not self.lost

    @property
    def changing(self) -> bool:
        """Whether a change is under way: others may have read of it before we are told of it."""
        return self._changing.locked()

    async def open(self, claim: int) -> None:
        """Take the catalog over under ``claim``: read its log up to a no-op of ours.

        Raises ``Unavailable``, with the reason where the log lacks what was acknowledged.
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
        """Raise ``LogShortened`` where ``known`` stands in the log no more, which has ``end``."""
        if known is None:
            return
        if end <= known.offset:
            raise LogShortened(f"it ends at {end}, but entry {known.offset} was read")
        with suppress(LogTrimmed):
            if (await read_known(self._tail, known.offset, end))[0].value != known.value:
                raise LogShortened(f"entry {known.offset} is another one than was read")

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Change the catalog no more while its log lacks what was acknowledged, and say so."""
        try:
            yield
        except LogShortened as error:
            self.lost = f"{self._log.name} lost what it had acknowledged: {error}"
            logger.critical("the catalog is not changed here: %s", self.lost)
            raise (OutcomeUnknown if error.unsettled else Unavailable)(self.lost) from error

    async def follow(self) -> None:
        """Fold what is appended, by us or by others, until cancelled."""
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
                logger.debug("the catalog is read later: %s", error)
                await asyncio.sleep(BACKOFF_S)

    async def _follow_on(self) -> None:
        """Wait for what comes next. Where nothing does, a broker has told so."""
        if self.told_age_s() > TOLD_S:  # Brokers were away, or changes come one upon the other.
            await self.refresh()
        asked_s = self._clock_s()
        if not await self._take(self.catalog.applied + 1, FOLLOW_S):
            self._told_s = max(self._told_s, asked_s)
        elif self._snapshot_due():  # Of proofs alone, while nothing is changed.
            async with self._turn():
                if self._snapshot_due():
                    await self._snapshot()

    def told_age_s(self) -> float:
        """Return how long ago a broker was asked that told us that we know everything.

        Less is known of it than of ``read_age_s``: a leader that was just elected, or cut off from
        the others, may not know the newest. It costs nothing: followers ask all the time.
        """
        return self._clock_s() - max(self._told_s, self._read_s)

    def read_age_s(self) -> float:
        """Return how old what we know may be: since we last asked for the log's end."""
        return self._clock_s() - self._read_s

    async def refresh_since(self, age_s_max: float) -> None:
        """See to it that what we know is no older than that. Raises ``Unavailable``."""
        async with self._refreshing:
            if self.read_age_s() > age_s_max:
                await self.refresh()

    async def refresh(self) -> None:
        """Fold everything that stands in the log now. Raises ``Unavailable``."""
        asked_s = self._clock_s()
        _, end = await self._tail.bounds()
        while self.catalog.applied + 1 < end:
            try:
                await self._take(self.catalog.applied + 1, 0.0)
            except LogTrimmed:
                await self._restart()
        self._read_s = max(self._read_s, asked_s)

    async def prove(self) -> None:
        """Fold everything that stood in the log at some time since the call, whoever leads it.

        A void record is appended: what stands before it is all there was. Those who ask before it
        is sent share it. Raises ``Unavailable`` where that can't be told, or the log lacks what was
        read of it.
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
        """Append a record that is void, and like no other; return its offset."""
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
                    raise Unavailable(f"the catalog's end can't be told: {error}") from error
            await asyncio.sleep(BACKOFF_S)

    async def _take(self, offset: int, wait_s: float) -> bool:
        """Fold what stands from ``offset`` on; return whether there was anything."""
        entries = await self._tail.read(offset, bytes_max=READ_BYTES, wait_s=wait_s)
        if not entries:
            return False  # A change that waits for its log keeps nobody from hearing so.
        async with self._changing:
            self._fold([entry for entry in entries if entry.offset > self.catalog.applied])
        return True

    async def _restart(self) -> None:
        """Go on at the log's start: what was trimmed is in the snapshot there."""
        start, _ = await self._tail.bounds()
        await self._take(start, 0.0)

    async def change(self, decide: Decide) -> None:
        """Apply what ``decide`` returns for the newest catalog and the change's commit stamp.

        ``decide`` may raise ``Rejected``; then nothing has changed. Its documents are applied
        together or not at all. Decides again where another worker's change came between. Raises
        ``Elsewhere`` where another worker owns the catalog, ``Unavailable`` where its log lacks
        what was acknowledged, or an earlier change waits for it too long, ``OutcomeUnknown`` where
        a log that lacks something, or a later owner's trim, keeps what became of the change from
        being told.
        """
        async with self._turn():
            while True:
                if self.lost:
                    raise Unavailable(self.lost)
                if not self.owning:
                    raise Elsewhere(CATALOG_SLOT)
                stamp = max(self._clock_us(), self.catalog.stamp + 1)
                documents = decide(self.catalog, stamp)
                if not documents or await self._append(documents, stamp):
                    break
            if self._snapshot_due():
                await self._snapshot()

    def _snapshot_due(self) -> bool:
        return self.owning and self.catalog.applied - self._snapshot_at > SNAPSHOT_EVERY

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for who changes the catalog now. Raises ``Unavailable``: nothing was decided."""
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
        """Take shard ids that nobody ever used; a crash before their use leaves a gap.

        Who uses them asks ``require_reserved`` within the change that does.
        """
        taken: list[str] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            taken[:] = [f"s{catalog.next_shard + index}" for index in range(count)]
            return [catalog.counters(shards=count)]

        await self.change(decide)
        return taken

    def require_reserved(self, shard_ids: Iterable[str]) -> None:
        """Raise ``Unavailable`` where ids were taken before the catalog was taken over last.

        Their logs go as those of nobody (``stream/cluster/topic_sweep.py``): no shard may be
        given them any more.
        """
        if any(int(shard_id[1:]) < self.first_shard for shard_id in shard_ids):
            raise Unavailable("The catalog was taken over meanwhile.")

    async def _append(self, documents: Sequence[Document], stamp: int) -> bool:
        bodies = [document_body(document) for document in documents]
        return await self._commit([(key, record.encode_body(body)) for key, body in bodies], stamp)

    async def _commit(self, bodies: Sequence[tuple[bytes, bytes]], stamp: int) -> bool:
        """Append an atomic batch; return whether it stands. Folds whatever does."""
        at = self.catalog.applied + 1
        last = len(bodies) - 1
        batch: list[tuple[bytes, bytes]] = []
        for index, (key, body) in enumerate(bodies):
            group = (record.FIRST if index == 0 else 0) | (record.LAST if index == last else 0)
            envelope = record.Envelope(at + index, self._claim, self._owner, stamp + index, group)
            batch.append((key, record.encode_record(envelope, body)))
        try:
            with self._losing():  # What was appended elsewhere than at the offset it names is void.
                told = await self._appender.append(batch, at)
        except LogTrimmed as error:  # By a later owner, who may have read that it stands.
            raise OutcomeUnknown(f"change of the catalog at {at}: {error}") from error
        if told.stands:
            self._fold([Entry(at + i, key, value) for i, (key, value) in enumerate(batch)])
            # A later owner among what follows ends ours, but not what it has read as standing.
            self._fold(told.entries)
        else:
            self._replay(told.entries)
        return told.stands

    async def _snapshot(self) -> None:
        """Write the whole catalog as one record and trim what came before it."""
        at = self.catalog.applied + 1
        body = record.encode_body(snapshot_body(self.catalog.documents()))
        stamp = max(self._clock_us(), self.catalog.stamp + 1)
        try:
            if await self._commit([(b"snapshot", body)], stamp):
                self._snapshot_at = at
                await self._log.trim(at)
        except StoreError as error:
            logger.warning("catalog snapshot is tried again later: %s", error)

    def _replay(self, entries: Sequence[Entry]) -> None:
        """Fold entries as the owner. Raises ``Unavailable`` where one is a later owner's."""
        if self._fold(entries):
            raise Unavailable("The catalog has a later owner; this one steps down.")

    def _fold(self, entries: Sequence[Entry]) -> bool:
        """Fold entries; return whether one is of a later claim than ours, which ends ours."""
        superseded = changed = False
        for entry in entries:
            valid = self.catalog.replay(entry.offset, entry.value)
            changed = changed or valid  # Void ones are proofs: who asks for many wakes nobody.
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
