"""The process that is a source now, and its checkpoint: a row of a rowtide table.

Each change of the row has the condition that the counter is the one that was read (see
``rowtide.client.changes.leases``). So only one of two processes succeeds. A waiting
process takes over if the counter does not move for the length of a lease on its own
clock. The former owner learns this at its next change and ends. Correctness of writes
does not depend on it: shards skip what they already have from any process.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable

from rowtide.client.changes.leases import Leases, ReaderLease
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable
from rowtide.stream.measures.clock import lease_clock

__all__ = ["SOURCE_TABLE", "SourceLease"]

logger = logging.getLogger(__name__)

SOURCE_TABLE = "rowtide_sources"
"""One table for all sources of an instance."""

DRIFT = 1.1
"""A waiting process waits this many times the time on which the owner relies."""

_ROW = "#source"


class SourceLease:
    """The row of one source in the table of ``leases``."""

    def __init__(
        self, leases: Leases, *, lease_s: float, clock: Callable[[], float] = lease_clock
    ) -> None:
        self.source = leases.consumer
        self.id = secrets.token_hex(8)
        self._leases = leases
        self._lease_s = lease_s
        self._clock = clock
        self._lease: ReaderLease | None = None
        self._changing = asyncio.Lock()
        self.term = 0
        """Rises each time any process takes the source."""

    @property
    def checkpoint(self) -> bytes:
        """The last stored checkpoint, of this process or the one before."""
        return base64.b64decode(self._require_lease().position)

    async def take(self) -> None:
        """Become the source. Wait while another process is. Raises ``Rejected``."""
        seen, since_s = -1, 0.0
        while True:
            try:
                await self._leases.open("")
                found = await self._leases.create(ReaderLease(_ROW))
                if found.counter != seen:
                    seen, since_s = found.counter, self._clock()
                if not found.owner or self._clock() - since_s >= self._lease_s * DRIFT:
                    mine = found._replace(owner=self.id)
                    now = await self._leases.change(found, mine)
                    if now.owner == self.id:
                        self._lease, self.term = now, now.counter
                        return
            except (Unavailable, OutcomeUnknown) as error:
                logger.info("source %s: %s", self.source, error)
            await asyncio.sleep(self._lease_s / 5)

    async def renew_often(self) -> None:
        """Renew until cancelled. Raises ``Rejected`` if another process has taken over."""
        while True:
            await asyncio.sleep(self._lease_s / 5)
            try:
                await self._change(None)
            except (Unavailable, OutcomeUnknown) as error:
                logger.info("source %s is renewed later: %s", self.source, error)

    async def keep(self, checkpoint: bytes) -> None:
        """Store a checkpoint. Raises ``Rejected`` if another process has taken over."""
        await self._change(base64.b64encode(checkpoint).decode())

    async def release(self) -> None:
        """Release the lease, so that another process can be the source at once."""
        async with self._changing:
            lease, self._lease = self._lease, None
            if lease is not None:
                await self._leases.change(lease, lease._replace(owner=""))

    def _require_lease(self) -> ReaderLease:
        if self._lease is None:
            raise self._make_takeover_error()
        return self._lease

    def _make_takeover_error(self) -> Rejected:
        return Rejected(
            "OTSConditionCheckFail", f"Another process is the source '{self.source}' by now."
        )

    async def _change(self, position: str | None) -> None:
        """Move the counter, and the checkpoint if there is one."""
        async with self._changing:
            while True:
                lease = self._require_lease()
                wanted = lease if position is None else lease._replace(position=position)
                now = await self._leases.change(lease, wanted)
                if now.owner != self.id:
                    self._lease = None
                    raise self._make_takeover_error()
                self._lease = now
                if now.counter > lease.counter and now.position == wanted.position:
                    return
                if now.counter == lease.counter:
                    raise Unavailable(f"The row of source '{self.source}' was not changed.")
