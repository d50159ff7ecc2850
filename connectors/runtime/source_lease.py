"""Which process is a source now, and how far it has come: a row of a rowtide table.

The row is changed only under the condition that its counter is the one that was read (see
``rowtide.client.changes.leases``): of two processes one alone succeeds. A process that does not
move the counter for the length of a lease, on the clock of whoever waits, is taken over from; it
learns so when it next tries to keep something, and ends. Writes do not rest on this: shards skip
what they have, whoever gives it.
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
"""One for all sources of an instance."""

DRIFT = 1.1
"""Who waits does so for this much longer than the owner of a lease relies on it."""

_ROW = "#source"


class SourceLease:
    """The row of one source, which ``leases`` have."""

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
        """Rises with every taking of the source, by whichever process."""

    @property
    def checkpoint(self) -> bytes:
        """Return what was kept last, by this process or the one before it."""
        return base64.b64decode(self._held().position)

    async def take(self) -> None:
        """Become the source; wait while another process is. Raises ``Rejected``."""
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
        """Renew until cancelled. Raises ``Rejected`` where another process has taken over."""
        while True:
            await asyncio.sleep(self._lease_s / 5)
            try:
                await self._change(None)
            except (Unavailable, OutcomeUnknown) as error:
                logger.info("source %s is renewed later: %s", self.source, error)

    async def keep(self, checkpoint: bytes) -> None:
        """Keep a checkpoint. Raises ``Rejected`` where another process has taken over."""
        await self._change(base64.b64encode(checkpoint).decode())

    async def release(self) -> None:
        """Let another process be the source at once."""
        async with self._changing:
            lease, self._lease = self._lease, None
            if lease is not None:
                await self._leases.change(lease, lease._replace(owner=""))

    def _held(self) -> ReaderLease:
        if self._lease is None:
            raise self._taken_over()
        return self._lease

    def _taken_over(self) -> Rejected:
        return Rejected(
            "OTSConditionCheckFail", f"Another process is source '{self.source}' by now."
        )

    async def _change(self, position: str | None) -> None:
        """Move the counter, and the checkpoint where there is one."""
        async with self._changing:
            while True:
                lease = self._held()
                wanted = lease if position is None else lease._replace(position=position)
                now = await self._leases.change(lease, wanted)
                if now.owner != self.id:
                    self._lease = None
                    raise self._taken_over()
                self._lease = now
                if now.counter > lease.counter and now.position == wanted.position:
                    return
                if now.counter == lease.counter:
                    raise Unavailable(f"The row of source '{self.source}' was not changed.")
