"""The one process that runs a connector whose target is files of one machine, and where these are.

Files that are somewhere else are other files: they lack what was written so far. The folder has a
name of its own, made with it, and the connector's lease keeps the name of the one that is filled.
A process with another folder waits until nobody with the right one has come for a while; then
it begins anew with the rows, and its folder is the right one from then on.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.start import rewind
from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.declarations import group_of
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.source_lease import SourceLease
from rowtide.core.values.errors import StoreError
from rowtide.stream.measures.clock import lease_clock

__all__ = ["at_home"]

logger = logging.getLogger(__name__)

AWAY_S = 30.0
"""For so long a process with the right folder may be away, as in a deploy, before another begins
anew with its own."""

LEASE_S_MIN = 5.0

_MARK = "folder-name"


@asynccontextmanager
async def at_home(
    place: ProcessContext, declaration: Declaration, api: ApiSource, stopping: asyncio.Event
) -> AsyncIterator[None]:
    """Be the process that runs a connector; wait while another one is, or ``stopping`` is set.

    What runs in the context is cancelled, and it raises ``Rejected``, where another takes over.
    """
    home = _Home(place, declaration, api)
    try:
        async with asyncio.TaskGroup() as tasks:
            taking = tasks.create_task(home.take(), name=f"home of {declaration.name}")
            stop = tasks.create_task(stopping.wait(), name="stopping")
            await asyncio.wait([taking, stop], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            taking.cancel()
            if taking.done():
                taking.result()
            renewing = tasks.create_task(home.renew(), name=f"renew {declaration.name}")
            yield
            renewing.cancel()
    finally:
        await home.leave()


class _Home:
    """The lease of a connector, and the folder here."""

    def __init__(self, place: ProcessContext, declaration: Declaration, api: ApiSource) -> None:
        self._name = declaration.name
        self._api = api
        self._place = place
        self._folder = Path(place.surroundings(declaration.name).folder)
        self._leases = TableLeases(place.endpoint, group_of(declaration.name))
        self._lease_s = max(declaration.lease_ms / 1000, LEASE_S_MIN)
        self._lease = SourceLease(self._leases, lease_s=self._lease_s)
        self._taken = False

    async def take(self) -> None:
        """Become the process that runs the connector; begin anew where its files are not here."""
        own = await asyncio.to_thread(self._folder_name)
        await self._wait_for_owner(own)
        await self._lease.take()
        self._taken = True
        filled = self._lease.checkpoint
        if filled == own:
            return
        if filled:
            logger.warning(
                "%s begins anew with the rows: what it filled is in another folder", self._name
            )
            leases = TableLeases(self._place.endpoint, group_of(self._name))
            await rewind(self._api, leases, "rows")
        await self._lease.keep(own)

    async def renew(self) -> None:
        """Renew the lease until cancelled. Raises ``Rejected`` where it is lost."""
        if self._taken:
            await self._lease.renew_often()

    async def leave(self) -> None:
        """Let another process run the connector at once."""
        if self._taken:
            with suppress(StoreError):
                await self._lease.release()

    async def _wait_for_owner(self, own: bytes) -> None:
        """Return when the folder that is filled is ours, or its processes are away for long."""
        counter, since_s = -1, lease_clock()
        while True:
            await self._leases.open("")
            row = next(iter((await self._leases.all()).values()), None)
            if row is None or not row.position or row.position == base64.b64encode(own).decode():
                return
            if row.counter != counter:
                counter, since_s = row.counter, lease_clock()
            elif lease_clock() - since_s > AWAY_S:
                return
            await asyncio.sleep(self._lease_s / 5)

    def _folder_name(self) -> bytes:
        mark = self._folder / _MARK
        try:
            return mark.read_bytes()
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            made = secrets.token_hex(8).encode()
            draft = mark.with_name(f"{_MARK}.{made.decode()}")
            draft.write_bytes(made)
            try:
                mark.hardlink_to(draft)  # Of two that make it at once one alone does.
            except FileExistsError:
                made = mark.read_bytes()
            draft.unlink()
            return made
