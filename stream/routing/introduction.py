"""Records a worker in the catalog when it joins, and removes it when it leaves.

The record has the worker's address. At a worker's first start the catalog also gets its
instance and its key, and the secret that workers share. A key in the catalog, present or
revoked, shows an earlier start. Its instance, if missing, was deleted and stays deleted.

The catalog's owner writes these documents; any other worker sends it a request.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from rowtide.core.cluster.catalog import (
    AccessKey,
    Catalog,
    Document,
    Instance,
    secret_document,
    worker_document,
)
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import FarewellRequest, NoFields, WelcomeRequest
from rowtide.core.values.errors import Elsewhere, OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.api.admin import instance_document, key_document
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.http.handlers import answers
from rowtide.stream.measures.ticks import sleep_to_tick

__all__ = ["Credentials", "Introduction"]

logger = logging.getLogger(__name__)

FAREWELL_S = 1.0
RETRY_S = 0.2
LOOK_S = 5.0
"""How often a worker checks that the catalog still has its record."""


class Credentials(NamedTuple):
    """The key pair and the instance that a worker creates at its first start."""

    access_key_id: str
    access_key_secret: str
    instance: str


class Introduction:
    """The introduction of the worker ``name`` at ``address``.

    ``forward`` sends an operation to a slot's worker.
    """

    def __init__(
        self,
        wanted: Credentials,
        catalog: CatalogOwner,
        forward: Callable[[int, str, Identity, bytes], Awaitable[bytes]],
        *,
        name: str,
        address: str,
    ) -> None:
        self._farewell = FarewellRequest(name, address)
        self._welcome = WelcomeRequest(name, address, *wanted)
        self._catalog = catalog
        self._forward = forward
        self._staying = False
        """True between the introduction and the goodbye."""

    async def make(self) -> None:
        """Wait until the catalog has this worker."""
        while True:
            try:
                await self._introduce()
                break
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("not introduced yet: %s", error)
                await asyncio.sleep(RETRY_S)
        self._staying = True

    async def keep(self) -> None:
        """Record this worker again whenever it was forgotten while silent, until cancelled."""
        while True:
            await sleep_to_tick(LOOK_S)
            if not self._staying or self._farewell.name in self._catalog.catalog.workers:
                continue
            logger.warning("the catalog lost this worker's record: recording it again")
            try:
                await self._introduce()
            except StoreError as error:
                logger.debug("not introduced again yet: %s", error)

    async def _introduce(self) -> None:
        """Record this worker through the catalog's owner, which may be itself. Raises
        ``StoreError``.
        """
        body = self._welcome.encode()
        try:
            await self.welcome(NOBODY, body)
        except Elsewhere:
            await self._forward(CATALOG_SLOT, WelcomeRequest.operation, NOBODY, body)

    @answers(WelcomeRequest.operation)
    async def welcome(self, _identity: Identity, body: bytes) -> bytes:
        """Record a worker, with its instance and its key. Raises ``Elsewhere``."""
        request = WelcomeRequest.decode(body)
        wanted = Credentials(request.access_key_id, request.access_key_secret, request.instance)

        def decide(catalog: Catalog, stamp: int) -> list[Document]:
            known = catalog.workers.get(request.name) == request.address
            worker = [] if known else [worker_document(request.name, request.address)]
            return worker + _documents(wanted, catalog, stamp)

        await self._catalog.change(decide)
        return NoFields().encode()

    async def part(self) -> None:
        """Remove this worker's record, if the owner answers: others then stop calling it."""
        self._staying = False
        body = self._farewell.encode()
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                try:
                    await self.farewell(NOBODY, body)
                except Elsewhere:
                    await self._forward(CATALOG_SLOT, FarewellRequest.operation, NOBODY, body)

    @answers(FarewellRequest.operation)
    async def farewell(self, _identity: Identity, body: bytes) -> bytes:
        """Remove a worker's record unless its address has changed. Raises ``Elsewhere``."""
        request = FarewellRequest.decode(body)

        def decide(catalog: Catalog, _stamp: int) -> list[Document]:
            there = catalog.workers.get(request.name) == request.address
            return [worker_document(request.name, None)] if there else []

        await self._catalog.change(decide)
        return NoFields().encode()


def _documents(wanted: Credentials, catalog: Catalog, stamp: int) -> list[Document]:
    """Return the documents that must exist and do not."""
    documents: list[Document] = []
    key_id = wanted.access_key_id
    if key_id not in catalog.keys and key_id not in catalog.revoked:
        if wanted.instance.lower() not in catalog.instances:
            kind = "high-performance"
            documents.append(instance_document(Instance(wanted.instance, kind, stamp)))
        key = AccessKey(key_id, wanted.access_key_secret, None, True, True, stamp)
        documents.append(key_document(key))
    if catalog.hop_secret is None:
        documents.append(secret_document(secrets.token_bytes(32)))
    return documents
