"""The one process that runs a connector whose target is files of one machine.

Files in another folder lack what was written so far. So the folder has a random name of
its own, and the connector's lease stores the name of the folder that is filled. A process
with another folder waits until no process with the right folder has come for a while.
Then it starts again with the rows, and its folder becomes the right one.
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
"""How long a process with the right folder may be absent, as in a deploy. Then another process
starts again with its own folder."""

LEASE_S_MIN = 5.0

_MARK = "folder-name"


@asynccontextmanager
async def at_home(
    place: ProcessContext, declaration: Declaration, api: ApiSource, stopping: asyncio.Event
) -> AsyncIterator[None]:
    """Be the process that runs a connector. Wait while another is, until ``stopping`` is
    set.

    If another process takes over, the body is cancelled and the context raises
    ``Rejected``.
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
    """The lease of a connector and the folder of this process."""

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
        """Become the process that runs the connector. Start again if its files are elsewhere."""
        own = await asyncio.to_thread(self._folder_name)
        await self._wait_for_owner(own)
        await self._lease.take()
        self._taken = True
        filled = self._lease.checkpoint
        if filled == own:
            return
        if filled:
            logger.warning(
                "%s starts again with the rows: the files that it filled are in another folder",
                self._name,
            )
            leases = TableLeases(self._place.endpoint, group_of(self._name))
            await rewind(self._api, leases, "rows")
        await self._lease.keep(own)

    async def renew(self) -> None:
        """Renew the lease until cancelled. Raises ``Rejected`` if the lease is lost."""
        if self._taken:
            await self._lease.renew_often()

    async def leave(self) -> None:
        """Release the lease, so that another process can run the connector at once."""
        if self._taken:
            with suppress(StoreError):
                await self._lease.release()

    async def _wait_for_owner(self, own: bytes) -> None:
        """Return once the filled folder is ours, or no process with it has come for ``AWAY_S``."""
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
                mark.hardlink_to(draft)  # Only one of two concurrent links succeeds.
            except FileExistsError:
                made = mark.read_bytes()
            draft.unlink()
            return made
