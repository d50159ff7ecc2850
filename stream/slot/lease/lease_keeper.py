"""Keeps the leases of this worker's slots: claims, waits, renews, releases.

Leases make reads strong; writes are safe without them. A slot may be read here while the
time since its last successful renewal was *sent* is below the lease. The clock runs
during suspend, so a laptop that wakes up does not serve under an old lease. Renewals of
all slots whose leases one broker leads go out together, on separate connections, so they
never queue behind data. A request to one broker never waits for another: a silent broker
delays only the leases that it leads. ``lease_watch.py`` reads the leases of others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from functools import partial

from rowtide.core.cluster.lease import (
    CLAIM,
    RELEASE,
    RENEW,
    Lease,
    LeaseView,
    Ownership,
    encode_lease,
)
from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.log.cluster import Appends, LogCluster
from rowtide.stream.log.log import Log
from rowtide.stream.measures.clock import lease_clock
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.appender import BACKOFF_S, READ_BYTES
from rowtide.stream.shard.lapsed_lease import LeaseLapsed
from rowtide.stream.slot.lease.held_leases import UNREAD, HeldLease, Watched
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.slot.lease.lease_watch import GATHER_S, LeaseWatch

__all__ = ["LeaseKeeper"]

logger = logging.getLogger(__name__)

PROOF_S = 5.0
"""Time limit for proving that a claim is the last."""

TRIM_EVERY, TRIM_APART = 600, 16
"""Renewals after which the records before the last one are trimmed. Slots that were
claimed together are trimmed in turns, because brokers wait for each other before they
answer.
"""


class LeaseKeeper:
    """The leases of one worker process. ``owner`` is its random id of 8 bytes."""

    def __init__(
        self,
        cluster: LogCluster,
        topic: str,
        *,
        owner: bytes,
        address: str,
        dead: Collection[bytes],
        settings: LeaseSettings,
        counts: Counts | None = None,
        clock_s: Callable[[], float] = lease_clock,
    ) -> None:
        self.owner = owner
        self._clock_s = clock_s
        self._counts = counts or Counts()
        self._cluster = cluster
        self._topic = topic
        self._address = address
        self._ended = {*dead, owner}
        self._settings = settings
        self._held: dict[int, HeldLease] = {}
        self.others = LeaseWatch(
            cluster,
            topic,
            ended=self._ended,
            settings=settings,
            is_ours=self._has_lease,
            clock_s=clock_s,
        )
        """What is known of other workers' leases."""

    def is_readable(self, slot: int) -> bool:
        """True if a strong read may be served from ``slot`` now."""
        held = self._held.get(slot)
        if held is None or held.is_lost:
            return False
        return self._clock_s() - held.sent_s < self._settings.lease_s

    def unreadable(self, slot: int) -> Unavailable:
        """Return the error of a strong read that ``is_readable`` forbids.

        It is ``LeaseLapsed`` while requests should wait: the lease is ours as far as
        known.
        """
        held, now_s = self._held.get(slot), self._clock_s()
        if held is None or held.is_lost or (wait_s := held.await_renewal_s(now_s)) <= 0:
            return Unavailable()
        return LeaseLapsed(partial(self._renewal, slot, held, now_s + wait_s))

    async def _renewal(self, slot: int, held: HeldLease, until_s: float) -> None:
        """Wait until a lease holds again, is lost or released, or has lapsed for too long.

        A renewal that is valid at its offset proves that no other worker has claimed the
        slot since.
        """
        while self._held.get(slot) is held and not held.is_lost and not self.is_readable(slot):
            if self._clock_s() >= until_s:
                return
            held.renewed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.renew_s):
                    await held.renewed.wait()

    def age_s(self, slot: int) -> float | None:
        """Return how long ago the last confirmed renewal was sent; None if no lease is held."""
        held = self._held.get(slot)
        return None if held is None or held.is_lost else self._clock_s() - held.sent_s

    def is_lost(self, slot: int) -> bool:
        """True if a later claim of another worker was read."""
        held = self._held.get(slot)
        return held is not None and held.is_lost

    def _has_lease(self, slot: int) -> bool:
        """True if this worker claimed a slot and has not lost it."""
        held = self._held.get(slot)
        return held is not None and not held.is_lost

    async def claim(self, slot: int) -> int:
        """Claim ``slot``, wait until every earlier owner has stopped reading; return the claim.

        Raises ``Unavailable`` or ``OutcomeUnknown``: then nothing is held and a retry is
        safe. It also raises if it meets a claim that the watch had not read, because the
        slot's new owner must be asked for it first. The next try claims over it, if
        necessary.
        """
        log = self._cluster.log(self._topic, slot)
        # The watched records were read earlier, so the wait began then.
        watched = self.others.find_watched(slot)
        view = LeaseView() if watched is None else watched.view.copy()
        claim, sent_s = await self._append_claim(log, view, watched)
        # Reads of the lease partition reach as far as our claim by the append rule, so
        # ``view`` is complete up to it.
        held = self._held[slot] = HeldLease(claim, log, view, sent_s)
        self.others.place(slot, self._address)
        self._counts.claims += 1
        wait_s = view.safe_at(claim, self._settings.lease_s, dead=self._ended) - self._clock_s()
        if wait_s > 0:
            logger.info("slot %d: waiting %.1f s for the lease of its former owner", slot, wait_s)
            await asyncio.sleep(wait_s)
        if self._held.get(slot) is not held:
            raise Unavailable(f"slot {slot} was given away before its claim was good")
        view.forget_before(claim)
        # Soon, so that a worker that starts then reads nothing of the former owners.
        held.trim_at = held.renewals + 1 + slot % TRIM_APART
        return claim

    async def is_still_last(self, slot: int) -> bool:
        """True if our claim was the last at some time since the call. An append proves it.

        Raises ``Unavailable`` if that fails. Callers that come before the append is sent
        share it.
        """
        held = self._held.get(slot)
        if held is None or held.is_lost:
            return False
        await held.proofs.since(lambda: self._prove(slot, held))
        return not held.is_lost

    async def _prove(self, slot: int, held: HeldLease) -> None:
        """Append a renewal until one is valid, unless a later claim is found.

        All earlier records were read by then. The renewal lengthens our lease only for
        its readers.
        """
        log = self._cluster.log(self._topic, slot)  # Running renewals use the other handle.
        until_s = self._clock_s() + PROOF_S
        while not self._is_overtaken(held):
            at = held.view.end
            record = self._record(held, RENEW)
            try:
                base = await log.append([(b"", record)], deadline_s=self._settings.lease_s / 2)
            except (OutcomeUnknown, Unavailable) as error:
                await log.disconnect()
                if self._clock_s() > until_s:
                    raise Unavailable(
                        f"{log.name}: cannot confirm who owns the lease: {error}"
                    ) from error
                await asyncio.sleep(BACKOFF_S)
                continue
            if base == at:
                held.view.end = max(held.view.end, at + 1)
                return
            await self._read_to_end(log, held.view)
            if held.view.end <= base:
                raise Unavailable(f"{log.name} ends at {held.view.end}, but {base} was written")

    def _is_overtaken(self, held: HeldLease) -> bool:
        """True if a later claim than ours was read. Then the slot is lost."""
        last = held.view.last
        if not held.is_lost and (last is None or last.claim != held.claim):
            logger.warning("%s: another worker claimed the slot, reads stop here", held.log.name)
            self._counts.leases_lost += 1
            held.is_lost = True
            self.others.note_left()
        return held.is_lost

    async def release(self, slot: int) -> None:
        """Stop serving reads of ``slot``, then append a release: a successor need not wait."""
        held = self._held.pop(slot, None)
        self.others.note_left()
        # Until its next worker's claim is read, the group knows better.
        self.others.place(slot, "")
        if held is None or held.is_lost:
            return
        log = self._cluster.log(self._topic, slot)  # A renewal may be running on the other handle.
        try:
            await self._append_release(held, log)
        except StoreError as error:
            logger.warning("slot %d: release failed, its lease will expire: %s", slot, error)
        finally:
            await log.disconnect()
            await held.log.disconnect()

    async def _append_release(self, held: HeldLease, log: Log) -> None:
        """Append a release until one is valid: a running renewal may take its offset."""
        while True:
            at = held.view.end
            record = self._record(held, RELEASE)
            if await log.append([(b"", record)], deadline_s=self._settings.lease_s) == at:
                return
            await self._read_to_end(log, held.view)
            last = held.view.last
            if last is None or last.claim != held.claim:
                return

    async def run(self) -> None:
        """Renew until cancelled: no round waits for the one before."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(self._settings.renew_s)
                self.renew(tasks)

    def renew(self, tasks: asyncio.TaskGroup) -> None:
        """Start to renew each lease whose last renewal has a known outcome.

        Leases that one broker leads go in one request.
        """
        by_leader: defaultdict[Hashable, list[tuple[int, HeldLease]]] = defaultdict(list)
        for slot, held in self._held.items():
            if not held.is_under_way and not self._is_overtaken(held):
                held.is_under_way = True
                by_leader[self._cluster.leader(held.log)].append((slot, held))
        for leader, holding in by_leader.items():
            tasks.create_task(self._renew(holding, tasks), name=f"renewals at {leader}")

    async def _renew(
        self, holding: Sequence[tuple[int, HeldLease]], tasks: asyncio.TaskGroup
    ) -> None:
        """Renew leases in one request. Work that follows from the answers goes to ``tasks``."""
        sent_s = self._clock_s()
        items: Appends = [(held.log, [(b"", self._record(held, RENEW))]) for _, held in holding]
        # Other tasks may read further before the answers come.
        places = [held.view.end for _, held in holding]
        answers = await self._cluster.append_many(items, deadline_s=self._settings.answer_s)
        for (slot, held), at, answer in zip(holding, places, answers, strict=True):
            if self._record_renewal(held, at, answer, sent_s):
                if held.renewals >= held.trim_at:
                    held.trim_at = held.renewals + TRIM_EVERY
                    tasks.create_task(self._trim(held, at), name=f"trim of leases[{slot}]")
            elif not isinstance(answer, Unavailable):
                tasks.create_task(self._settle(slot, held), name=f"renewal of leases[{slot}]")
                continue
            held.is_under_way = False

    def _record_renewal(
        self, held: HeldLease, at: int, answer: int | StoreError, sent_s: float
    ) -> bool:
        """Record the result of a renewal that named the offset ``at``. True if it is valid."""
        if answer != at:
            self._counts.renewals_failed += 1
            return False
        # It is valid. Our own record need not be read back.
        held.view.end = max(held.view.end, at + 1)
        held.note_renewal(sent_s)
        self._counts.renewals += 1
        return True

    async def _settle(self, slot: int, held: HeldLease) -> None:
        """Resolve a renewal whose outcome is unknown.

        Retried as long as the slot is ours: a broker that does not answer may be deposed
        meanwhile.
        """
        log = logger.warning
        await held.log.disconnect()
        while self._held.get(slot) is held:
            try:
                async with asyncio.timeout(self._settings.answer_s):
                    await self._read_to_end(held.log, held.view)
            except (StoreError, TimeoutError) as error:
                self._counts.renewals_failed += 1
                log("%s: renewal: %s", held.log.name, str(error) or "no answer")
                log = logger.debug  # One warning is enough.
                await asyncio.sleep(self._settings.renew_s)
                continue
            held.is_under_way = False
            self._is_overtaken(held)
            return

    async def _trim(self, held: HeldLease, at: int) -> None:
        """Trim the records before a valid renewal of ours.

        The renewal stays: later records may be void, and a former owner that finds
        nothing else would take its own claim for the last.
        """
        try:
            await held.log.trim(at)
        except StoreError as error:
            logger.info("%s: trim failed, retrying later: %s", held.log.name, error)

    def _record(self, held: HeldLease, kind: str) -> bytes:
        return self._encode_record(held.view.end, kind, held.claim)

    def _encode_record(self, at: int, kind: str, claim: int) -> bytes:
        lease = Lease(at, kind, claim, self.owner, self._address, self._settings.lease_ms)
        return encode_lease(lease)

    async def _append_claim(
        self, log: Log, view: LeaseView, watched: Watched | None
    ) -> tuple[int, float]:
        """Append a claim until one is valid; return its offset and when it was sent."""
        known = view.last
        if view.end <= 0:  # Nothing was watched yet, or the watched records were trimmed.
            await self._read_to_end(log, view)
            self._yield_to_newer(watched, known, view)
        while True:
            # Tried first at the end of the watched records: at any other offset the claim
            # is void.
            at = view.end
            sent_s = self._clock_s()
            record = self._encode_record(at, CLAIM, at)
            try:
                base = await log.append([(b"", record)], deadline_s=self._settings.lease_s)
            except OutcomeUnknown:
                # A claim that is written late is harmless: our next one is later.
                await log.disconnect()
                await asyncio.sleep(BACKOFF_S)
                base = UNREAD
            if base == at:
                view.read(at, record, self._clock_s())
                return at, sent_s
            await self._read_to_end(log, view)
            self._yield_to_newer(watched, known, view)

    def _yield_to_newer(
        self, watched: Watched | None, known: Ownership | None, view: LeaseView
    ) -> None:
        """Raise ``Unavailable`` if another worker has claimed a slot since its leases were read.

        To claim over it would mean to wait for its lease, while no worker has the slot.
        We yield to each claim once, because the watch may lag for long, as behind a
        deposed broker.
        """
        last = view.last
        if watched is None or not watched.looked.is_set() or last is None:
            return
        if last.released or last.owner in self._ended:
            return
        if last.claim > max(watched.met, -1 if known is None else known.claim):
            watched.met = last.claim
            raise Unavailable(f"{watched.log.name}: {last.address} has claimed it just now")

    async def _read_to_end(self, log: Log, view: LeaseView) -> None:
        end = await log.end()
        view.end = max(view.end, 0)
        while view.end < end:
            entries: Sequence[tuple[int, bytes, bytes]]
            try:
                entries = await log.read(view.end, bytes_max=READ_BYTES)
            except LogTrimmed:  # By an owner that has waited for all earlier ones.
                view.end, _ = await log.bounds()
                continue
            read_s = self._clock_s()
            for offset, _, value in entries:
                view.read(offset, value, read_s)
            if not entries:  # A new leader may report fewer records than it has, for a moment.
                await asyncio.sleep(GATHER_S)
