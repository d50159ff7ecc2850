"""Makes a worker known: its instance, its key, and the secret that workers share, in the catalog.

The catalog's owner writes them; any other worker asks it to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rowtide.core.authentication import Identity
from rowtide.core.catalog import AccessKey, Catalog, Document, Instance, secret_document
from rowtide.core.errors import Elsewhere, OutcomeUnknown, Unavailable
from rowtide.stream.admin_operations import instance_document, key_document
from rowtide.stream.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.hop import NOBODY

__all__ = ["WELCOME", "Credentials", "Introduction"]

logger = logging.getLogger(__name__)

WELCOME = "RowtideWelcome"
RETRY_S = 0.2


class Credentials(NamedTuple):
    """The key pair and the instance that a worker makes sure exist."""

    access_key_id: str
    access_key_secret: str
    instance: str


class Introduction:
    """That of one worker. ``forward`` has the worker of a slot answer an operation."""

    def __init__(
        self,
        wanted: Credentials,
        catalog: CatalogOwner,
        forward: Callable[[int, str, Identity, bytes], Awaitable[bytes]],
    ) -> None:
        self._wanted = wanted
        self._catalog = catalog
        self._forward = forward

    async def make(self) -> None:
        """Return once we are known."""
        body = json.dumps(self._wanted._asdict()).encode()
        while True:
            try:
                await self.welcome(NOBODY, body)
                return
            except Elsewhere:
                pass
            try:
                await self._forward(CATALOG_SLOT, WELCOME, NOBODY, body)
                return
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("not introduced yet: %s", error)
                await asyncio.sleep(RETRY_S)

    async def welcome(self, _identity: Identity, body: bytes) -> bytes:
        """Make the instance and the key of a worker exist. Raises ``Elsewhere``."""
        wanted = Credentials(**json.loads(body))
        await self._catalog.change(lambda catalog, stamp: _documents(wanted, catalog, stamp))
        return b"{}"


def _documents(wanted: Credentials, catalog: Catalog, stamp: int) -> list[Document]:
    """Return what must exist and does not."""
    documents: list[Document] = []
    if wanted.instance.lower() not in catalog.instances:
        kind = "high-performance"
        documents.append(instance_document(Instance(wanted.instance, kind, stamp)))
    if wanted.access_key_id not in catalog.keys:
        key = AccessKey(wanted.access_key_id, wanted.access_key_secret, None, True, True, stamp)
        documents.append(key_document(key))
    if catalog.hop_secret is None:
        documents.append(secret_document(secrets.token_bytes(32)))
    return documents
