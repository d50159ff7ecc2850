"""Changes the catalog: one at a time, each an atomic batch in the catalog's log.

The catalog is a shard of slot 0: its owner holds that slot's claim, appends by the append rule and
answers after the record stands. A snapshot is appended now and then, and the log before it trimmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from rowtide.core import record
from rowtide.core.catalog import Catalog, Document, document_body, snapshot_body
from rowtide.core.errors import StoreError, Unavailable
from rowtide.stream.appender import Appender
from rowtide.stream.log import Entry, Log

__all__ = ["CatalogOwner"]

logger = logging.getLogger(__name__)

SNAPSHOT_EVERY = 500
"""Entries after which a snapshot is due."""

Decide = Callable[[Catalog, int], Sequence[Document]]


class CatalogOwner:
    """The catalog and its log. ``clock_us`` gives Unix microseconds.

    ``changed`` is called whenever the catalog has changed, before anything else may run: whoever
    keeps something of the catalog never works by an older one.
    """

    def __init__(
        self,
        log: Log,
        *,
        owner: bytes,
        clock_us: Callable[[], int],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.catalog = Catalog()
        self.ready = asyncio.Event()
        self._appender = Appender(log, self._noop)
        self._log = log
        self._owner = owner
        self._claim = -1
        self._clock_us = clock_us
        self._changed = changed
        self._changing = asyncio.Lock()
        self._snapshot_at = 0

    async def open(self, claim: int) -> None:
        """Take the catalog over under ``claim``: read its log up to a no-op of ours."""
        async with self._changing:
            self._claim = claim
            start, _ = await self._log.bounds()
            end = await self._appender.fence()
            catalog = self.catalog
            at = max(start, catalog.applied + 1)
            self._snapshot_at = start
            self._replay(await self._appender.read(at, end))
        self.ready.set()

    async def change(self, decide: Decide) -> None:
        """Apply what ``decide`` returns for the newest catalog and the change's commit stamp.

        ``decide`` may raise ``Rejected``; then nothing has changed. Its documents are applied
        together or not at all. Decides again where another worker's change came between.
        """
        async with self._changing:
            while True:
                stamp = max(self._clock_us(), self.catalog.stamp + 1)
                documents = decide(self.catalog, stamp)
                if not documents or await self._append(documents, stamp):
                    break
            if self.catalog.applied - self._snapshot_at > SNAPSHOT_EVERY:
                await self._snapshot()

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
        told = await self._appender.append(batch, at)
        if told.stands:
            self._replay([Entry(at + i, key, value) for i, (key, value) in enumerate(batch)])
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
        later = False
        for entry in entries:
            valid = self.catalog.replay(entry.offset, entry.value)
            if valid and record.decode_envelope(entry.value).claim > self._claim:
                later = True
                break
        if entries:
            self._changed()
        if later:
            self.ready.clear()
            raise Unavailable("The catalog has a later owner; this one steps down.")

    def _noop(self, at: int) -> tuple[bytes, bytes]:
        stamp = max(self._clock_us(), self.catalog.stamp + 1)
        envelope = record.Envelope(at, self._claim, self._owner, stamp, record.SINGLE)
        return b"", record.encode_record(envelope, record.encode_body(record.NoOp()))
