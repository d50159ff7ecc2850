"""Brings shards in line with the catalog: here, and on every other worker.

A change of the catalog is in force once every worker with a shard of the table has
opened, changed or sealed it. Each worker does so whenever the catalog has changed. The
worker that made the change calls all of them before it answers its client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from rowtide.core.cluster.catalog import TABLE, Catalog, Document
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import NoFields, SettleRequest
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.cluster.catalog_owner import CatalogOwner, Decide
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.peers import Peers
from rowtide.stream.http.handlers import answers
from rowtide.stream.slot.slot import Slot

__all__ = ["Placement"]

logger = logging.getLogger(__name__)

RETRY_S = 0.2
SETTLE_S_MAX = 15.0
"""After this long a worker that does not answer makes the outcome unknown."""

ASK_S = 2.0
"""A worker that has not settled by then is called again, unless its slots were taken over."""

IDLE_S = 1.0
"""Time limit for a worker without slots, which may be dead."""


class Placement:
    """The shards of this worker's slots, and the calls to other workers."""

    def __init__(
        self,
        catalog: CatalogOwner,
        slots: Mapping[int, Slot],
        hop: HopClient,
        peers: Peers,
    ) -> None:
        self._peers = peers
        self._catalog = catalog
        self._slots = slots
        self._hop = hop
        self.wake = asyncio.Event()
        """Set with every change of the catalog."""

    async def run(self) -> None:
        """Start settling whenever the catalog has changed, until cancelled.

        Nothing is waited for: each shard is brought in line in its own task.
        """
        while True:
            await self.wake.wait()
            self.wake.clear()
            self._begin_here()

    async def change(self, decide: Decide) -> None:
        """Change the catalog through its owner, and return once the change is in force
        everywhere.
        """
        tables: set[int] = set()

        def note_tables(catalog: Catalog, stamp: int) -> Sequence[Document]:
            documents = decide(catalog, stamp)
            tables.clear()
            tables.update(int(each.id) for each in documents if each.kind == TABLE)
            return documents

        await self._catalog.change(note_tables)
        await self.settle(tables)

    async def settle(self, tables: Collection[int]) -> None:
        """Return once every worker has these tables, by number, as the catalog has them now.

        Raises ``OutcomeUnknown``, and nothing else, if that takes too long: the change
        will come into force. Shards of other tables are not waited for.
        """
        asked_for = SettleRequest(self._catalog.catalog.applied, sorted(tables)).encode()
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                await _until_done(partial(self._settle_here, tables))
                asked: set[str] = set()
                # Repeated, because a worker may take over the slots of one that dies
                # meanwhile.
                while left := self._peers.serving() - asked:
                    for address in sorted(left):
                        await _until_done(partial(self._ask, address, asked_for))
                    asked |= left
                await self._tell_idle(asked_for)
        except TimeoutError:
            raise OutcomeUnknown from None

    async def _tell_idle(self, asked_for: bytes) -> None:
        """Let workers without slots read the catalog now, which they would otherwise do later."""
        idle = self._peers.list_addresses() - self._peers.serving()
        if idle:
            operation = SettleRequest.operation
            await self._peers.ask(operation, asked_for, among=idle, answer_s=IDLE_S)

    async def others(self, operation: str, body: bytes) -> list[bytes]:
        """Return the answer of every other worker with slots. Raises the error of any of them."""
        serving = sorted(self._peers.serving())
        return [await self._hop.call(at, NOBODY, operation, body) for at in serving]

    @answers(SettleRequest.operation)
    async def settle_request(self, _identity: Identity, body: bytes) -> bytes:
        """Settle the ``tables`` that another worker has changed, by the catalog at ``applied``."""
        request = SettleRequest.decode(body)
        if self._catalog.catalog.applied < request.applied:
            await self._catalog.refresh()
        if self._catalog.catalog.applied < request.applied:
            raise Unavailable("The catalog is not read that far yet.")
        await self._settle_here(set(request.tables))
        return NoFields().encode()

    async def _ask(self, address: str, asked_for: bytes) -> None:
        """Call another worker to settle, unless it owns no slot any more.

        Raises ``Unavailable`` if it has not settled yet: a hanging worker never answers.
        """
        if address not in self._peers.serving():
            return
        try:
            async with asyncio.timeout(ASK_S):
                await self._hop.call(address, NOBODY, SettleRequest.operation, asked_for)
        except TimeoutError:
            raise Unavailable from None

    def _begin_here(self) -> None:
        for slot in list(self._slots.values()):
            with suppress(Unavailable):  # A slot that just closes begins again when it opens.
                slot.begin_settling()

    async def _settle_here(self, tables: Collection[int]) -> None:
        self._begin_here()
        for slot in list(self._slots.values()):  # All of them settle in parallel.
            await slot.wait_until_settled(tables)


async def _until_done(attempt: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await attempt()
            return
        except StoreError as error:  # The change is durable: it cannot be rejected any more.
            logger.debug("settling failed, retrying: %s", error)
            await asyncio.sleep(RETRY_S)
