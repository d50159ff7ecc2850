"""A worker's membership in the group that divides the slots.

``Membership`` keeps a Faust app running. When the broker is away or a Faust service
crashes, it builds a new app, with growing pauses. The worker keeps its slots meanwhile.
Safety never depends on this: writes depend on the append rule, reads on leases.

Invariants:

- Every callback runs in the event loop.
- ``on_standby`` gets all slots to keep copies of. Then come ``on_revoked`` and ``on_assigned``,
  alternately for each slot.
- A slot that stays through a rebalance is not mentioned. A slot that another worker may have
  served meanwhile is revoked and assigned.
- No callback comes after ``stop`` returns. The caller has closed its slots by then; leaving
  the group hands them over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from mode import Service

from rowtide.stream.log.kafka.connection import tls_context
from rowtide.stream.worker.faust_app import SlotApp
from rowtide.stream.worker.faust_config import Division, MembershipConfig
from rowtide.stream.worker.faust_transport import SlotCountMismatch

__all__ = ["Membership", "MembershipConfig", "SlotCountMismatch"]

log = logging.getLogger(__name__)

STOP_S = 2.0
"""After this long a stopping app is left to its daemon thread, because no broker answers."""

PAUSE_S_MIN = 0.25
PAUSE_S_MAX = 5.0
"""Pause between two lives of the app; each failure doubles it."""

LIFE_S_MIN = 30.0
"""A life of this length ends a series of failures: the next pause is the shortest again."""


class Membership:
    """The slots that the group has given to this worker.

    ``on_lost`` is called if the membership ends without a call of ``stop``: the worker
    gets and loses no more slots.
    """

    def __init__(
        self,
        config: MembershipConfig,
        *,
        on_assigned: Callable[[frozenset[int]], None],
        on_revoked: Callable[[frozenset[int]], None],
        on_standby: Callable[[frozenset[int]], None] = lambda _slots: None,
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.changelog_topic = config.changelog_topic
        self._config = config
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._on_standby = on_standby
        self._on_lost = on_lost
        self._now = Division()
        self._generation = 0
        self._keeper: _Keeper | None = None

    @property
    def slots(self) -> frozenset[int]:
        """The slots of this worker, by the last division that it received."""
        return self._now.owned

    def owners(self) -> Mapping[int, str]:
        """Return the address of each slot's worker, as of the last rebalance with this worker."""
        return self._now.owners

    def standbys(self, slot: int) -> Sequence[str]:
        """Return the addresses of the workers that keep a copy of a slot, as of that rebalance."""
        return self._now.standbys.get(slot, ())

    async def start(self) -> None:
        """Join, and return once the group has assigned slots. Waits as long as Kafka is away.

        Raises ``SlotCountMismatch``, and OSError for certificate files that cannot be
        read.
        """
        assert self._keeper is None, "a membership is started once"
        tls_context(self._config.security)
        self._keeper = _Keeper(self._new_app, self._on_lost)
        await self._keeper.start()
        await self._keeper.joined

    async def stop(self) -> None:
        """Leave the group; the other workers get the slots at once."""
        keeper = self._keeper
        if keeper is not None:
            await keeper.stop()

    def _new_app(self) -> SlotApp:
        return SlotApp(self._config, on_slots=self._take)

    def _take(self, now: Division, generation: int) -> None:
        slots, before = now.owned, self._now.owned
        kept = before & slots
        if generation not in (self._generation, self._generation + 1):
            # The group was divided without us, because we slept through the session
            # time-out. So another worker may have served even the slots that are ours
            # again.
            kept = frozenset()
        gone, new = before - kept, slots - kept
        # The state first: a callback that fails must not be called for these slots again.
        self._now, self._generation = now, generation
        self._on_standby(now.standby)
        if gone:
            self._on_revoked(gone)
        if new:
            self._on_assigned(new)


class _Keeper(Service):  # type: ignore[misc]
    """Runs one app after the other until stopped."""

    mundane_level = "debug"

    def __init__(self, new_app: Callable[[], SlotApp], on_lost: Callable[[], None]) -> None:
        super().__init__()
        self.joined: asyncio.Future[None] = self.loop.create_future()
        self._new_app = new_app
        self._on_lost = on_lost
        self._finished = asyncio.Event()

    @Service.task  # type: ignore[untyped-decorator]
    async def _keep(self) -> None:
        pause_s = PAUSE_S_MIN
        try:
            while not self.should_stop:
                born = self.loop.time()
                failure = await self._live()
                if isinstance(failure, SlotCountMismatch) and not self.joined.done():
                    self.joined.set_exception(failure)
                    return
                if failure is not None:
                    if self.loop.time() - born > LIFE_S_MIN:
                        pause_s = PAUSE_S_MIN
                    log.warning(
                        "slots: group membership lost, retrying in %s s: %r", pause_s, failure
                    )
                    await self.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            if not self.joined.done():
                self.joined.set_exception(ConnectionError("stopped before the group was joined"))
            elif not self.should_stop and self.joined.exception() is None:
                self._on_lost()
            self._finished.set()

    async def _live(self) -> BaseException | None:
        """Run one app; return why it ended, or None after ``stop``."""
        app: SlotApp | None = None
        try:
            app = self._new_app()
            result = await self.wait_first(app.run(self._set_joined))
            app.leaving = result.stopped
            failure = None if result.stopped else result.results[0]
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - The worker goes on.
            _pass_on_our_cancellation()
            failure = error
        if app is not None:
            await self._end(app)
        return failure

    def _set_joined(self) -> None:
        if not self.joined.done():
            self.joined.set_result(None)

    async def _end(self, app: SlotApp) -> None:
        try:
            async with asyncio.timeout(STOP_S) as deadline:
                await app.stop()
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - Logged here.
            _pass_on_our_cancellation()
            if not deadline.expired():  # A new app follows, whatever this one leaves behind.
                log.warning("slots: the app did not stop, starting a new one: %r", error)
        if deadline.expired():  # mode may have swallowed the cancellation.
            log.warning("slots: the broker is silent, leaving the group without a message")

    async def on_stop(self) -> None:
        # mode cancels tasks after this; an app that is cancelled while it stops would not leave.
        await self._finished.wait()


def _pass_on_our_cancellation() -> None:
    """Raise if this task was cancelled. A cancellation by Faust ends only its app."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
